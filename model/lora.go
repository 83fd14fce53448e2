package model

import (
	"fmt"
	"math"
	"path"
	"slices"
	"strings"

	. "github.com/gomlx/gomlx/core/graph"
)

// LoRA is an adapter on a model whose own weights are frozen (Hu et al. 2021): a linear layer xWᵀ becomes
// xWᵀ + Scale·(xAᵀ)Bᵀ with A [rank, in] and B [out, rank].
type LoRA struct {
	Rank    int
	Alpha   float64
	RSLoRA  bool     // the scale is alpha/√rank instead of alpha/rank
	Modules []string // "self_attn.q_proj", …, in the order of a layer's tensors; the same in all layers

	Base string // SHA-256 of the frozen weights ([Model.Hash]); "": unknown, as of an adapter that peft made
	// Quantization says how an engine holds the frozen matrices of linear layers: NF4, or "", not quantised.
	Quantization string

	From string // the folder of the frozen model, its id, or the name that the adapter's maker gave it
}

// Scale is the factor of the adapter's product.
func (l *LoRA) Scale() float64 {
	if l.RSLoRA {
		return l.Alpha / math.Sqrt(float64(l.Rank))
	}
	return l.Alpha / float64(l.Rank)
}

// Ends of the names of an adapter's tensors, after the module's.
const loraA, loraB = ".lora_A.weight", ".lora_B.weight"

// linearModules lists a layer's linear layers without "model.layers.N.", with their shapes [out, in]. A router of
// experts, whose choice small errors change, is not one of them.
func (c *Config) linearModules() (modules []ParamSpec) {
	for _, s := range c.layerSpecs(0) {
		name, ok := strings.CutSuffix(s.Name[len("model.layers.0."):], ".weight")
		if ok && len(s.Shape) == 2 && !isRouter(name) {
			modules = append(modules, ParamSpec{Name: name, Shape: s.Shape})
		}
	}
	return modules
}

// AdapterModules lists the linear layers whose names, such as self_attn.q_proj, or last parts, q_proj, match one of the
// patterns, in which * is any text; all of them without patterns. A pattern that matches none is an error. Experts get
// no adapters, since transformers and peft do not have them as layers.
func (c *Config) AdapterModules(patterns []string) (modules []string, err error) {
	linear := slices.DeleteFunc(c.linearModules(), func(s ParamSpec) bool { return isExpert(s.Name) })
	var names []string
	used := make([]bool, len(patterns))
	for _, m := range linear {
		names = append(names, m.Name)
		matches := len(patterns) == 0
		for i, p := range patterns {
			whole, err := path.Match(p, m.Name)
			if err != nil {
				return nil, fmt.Errorf("%q: want a name or a pattern with *", p)
			}
			end, _ := path.Match(p, path.Ext(m.Name)[1:])
			used[i] = used[i] || whole || end
			matches = matches || whole || end
		}
		if matches {
			modules = append(modules, m.Name)
		}
	}
	if i := slices.Index(used, false); i >= 0 {
		return nil, fmt.Errorf("%q matches no module of the model: want some of %s", patterns[i],
			strings.Join(names, ", "))
	}
	return modules, nil
}

// loraSpecs lists the adapter's tensors in a layer: A and B of each module.
func (c *Config) loraSpecs(layer int) (specs []ParamSpec) {
	if c.LoRA == nil {
		return nil
	}
	for _, m := range c.linearModules() {
		if slices.Contains(c.LoRA.Modules, m.Name) {
			name := fmt.Sprintf("model.layers.%d.%s", layer, m.Name)
			specs = append(specs, ParamSpec{Name: name + loraA, Shape: []int{c.LoRA.Rank, m.Shape[1]}},
				ParamSpec{Name: name + loraB, Shape: []int{m.Shape[0], c.LoRA.Rank}})
		}
	}
	return specs
}

// Frozen is the number of tensors at the head of ParamSpecs that training does not change: all but the adapter's and a
// reward model's score, or none without an adapter.
func (c *Config) Frozen() int {
	switch {
	case c == nil || c.LoRA == nil:
		return 0
	case c.trainsScore():
		return c.normIndex() + 1
	}
	return c.baseCount()
}

// trainsScore says that a reward model's score is trained whole beside an adapter, as peft's modules_to_save has it.
func (c *Config) trainsScore() bool { return c.LoRA != nil && c.Reward && c.Head == nil }

// baseCount is the number of tensors without an adapter's.
func (c *Config) baseCount() int {
	return c.normIndex() + 1 + len(c.headSpecs())
}

// Base is the model without its adapter. It shares the tensors.
func (m *Model) Base() *Model {
	c := *m.Config
	c.LoRA = nil
	return &Model{Config: &c, Params: m.Params[:c.baseCount()], files: m.files}
}

// Trained lists the tensors that training changes.
func (m *Model) Trained() []*Param { return m.Params[m.Config.Frozen():] }

// Adapt is the model with a new adapter, whose product is 0. It shares the model's tensors. A is drawn as peft does
// (Kaiming uniform with a = √5: between ±1/√in), from the seed and the tensor's name; B is 0.
func (m *Model) Adapt(l LoRA, seed uint64) *Model {
	c := *m.Config
	c.LoRA = &l
	out := &Model{Config: &c, Params: slices.Clone(m.Base().Params), files: m.files}
	for layer := range c.Layers {
		for _, s := range c.loraSpecs(layer) {
			p := newParam(s)
			if strings.HasSuffix(s.Name, loraA) {
				r, limit := generator(p, seed), 1/math.Sqrt(float64(s.Shape[1]))
				for i := range p.Data {
					p.Data[i] = float32((2*r.Float64() - 1) * limit)
				}
			}
			out.Params = append(out.Params, p)
		}
	}
	return out
}

// adapt adds the adapter's product to y, the result of the linear layer of a name: down applies A to the layer's input,
// up applies B. The scale is on the side of few numbers.
func (c *Config) adapt(y *Node, w layerWeights, name string, down func(a *Node) *Node,
	up func(x, b *Node) *Node) *Node {
	a, b := w[name+loraA], w[name+loraB]
	if a == nil {
		return y
	}
	x := down(a)
	x = ConvertDType(MulScalar(widen(x), c.LoRA.Scale()), x.DType())
	return Add(y, up(x, b))
}
