package model

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"

	"github.com/gomlx/compute/shapes"
)

// ParamSpec names one tensor of a model.
type ParamSpec struct {
	Name    string // Hugging Face's, e.g. "model.layers.0.self_attn.q_proj.weight"
	Shape   []int  // matrices are [out, in]
	NoDecay bool   // norms and biases, which have no weight decay
}

// Size is the number of elements.
func (s ParamSpec) Size() int { return shapes.Shape{Dimensions: s.Shape}.Size() }

// Param is one tensor of a model in float32, row-major.
type Param struct {
	Name    string
	Shape   []int
	Data    []float32 // nil: they are in a file ([Open]), or were released
	NoDecay bool

	file *tensorFile // has the values where Data is nil; nil: none has
}

// Size is the number of elements, whether or not the values are in memory.
func (p *Param) Size() int { return shapes.Shape{Dimensions: p.Shape}.Size() }

// Read copies the values, from memory or from their file, which must not have changed since it was opened.
func (p *Param) Read(to []float32) error {
	if len(to) != p.Size() {
		return fmt.Errorf("tensor %s: found room for %d values, want %d", p.Name, len(to), p.Size())
	}
	return p.pieces(func(x []float32, at int) { copy(to[at:], x) })
}

// pieces calls use for stretches of the values one after the other, with the index of the first. A stretch is valid
// until the next one.
func (p *Param) pieces(use func(x []float32, at int)) error {
	switch {
	case p.Data != nil:
		use(p.Data, 0)
		return nil
	case p.file != nil:
		return p.file.weights(p.Name, use)
	}
	return fmt.Errorf("tensor %s: its weights have been released", p.Name)
}

// Reader reads tensors one at a time.
type Reader struct {
	memory  []float32
	largest int
}

// NewReader makes a reader of tensors of at most this many elements.
func NewReader(largest int) *Reader { return &Reader{largest: largest} }

// Read gives a tensor's values. Values of a file are valid until the next Read, which takes the same memory.
func (r *Reader) Read(p *Param) ([]float32, error) {
	if p.Data != nil {
		return p.Data, nil
	}
	if r.memory == nil {
		r.memory = make([]float32, r.largest)
	}
	to := r.memory[:p.Size()]
	return to, p.Read(to)
}

// fetch takes the values into memory.
func (p *Param) fetch() error {
	data := make([]float32, p.Size())
	if err := p.Read(data); err != nil {
		return err
	}
	p.Data, p.file = data, nil
	return nil
}

// Model is a decoder's configuration and weights.
type Model struct {
	Config *Config
	Params []*Param // in the order of Config.ParamSpecs
	Known  string   // the weights' Hash, for checks of adapters after Release; "": unknown
	Unread []string // names of tensors of its files that no one reads, such as an image encoder's

	files *Stored // of Params; nil: none
}

// Largest is the number of elements of the largest tensor.
func (m *Model) Largest() (n int) {
	for _, p := range m.Params {
		n = max(n, p.Size())
	}
	return n
}

// Release drops the weights and closes their files, once an engine has its own copy, also for the models that share
// them ([Model.Adapt]). Names and shapes stay.
func (m *Model) Release() {
	for _, p := range m.Params {
		p.Data, p.file = nil, nil
	}
	m.files.Close()
	m.files = nil
}

// Names of the tensors outside the layers.
const (
	embedName = "model.embed_tokens.weight"
	normName  = "model.norm.weight"
	headName  = "lm_head.weight"
	scoreName = "score.weight"
)

// ParamSpecs lists a model's tensors. Their order is fixed, since checkpoints and optimiser moments depend on it: the
// embedding; for each layer input norm, q, k, v, o (each weight before its bias, then the norms of q and k),
// post-attention norm, gate, up, down; the last norm; the head unless it is tied; then the adapter's, if there is one.
// gemma2 has norms before and after gate, up, down. phi has one layer for q, k, v and one for gate, up. Mixtures of
// experts have a router and each expert's gate, up, down.
func (c *Config) ParamSpecs() []ParamSpec {
	specs := []ParamSpec{{Name: embedName, Shape: []int{c.VocabSize, c.HiddenSize}}}
	for i := range c.Layers {
		specs = append(specs, c.layerSpecs(i)...)
	}
	specs = append(specs, ParamSpec{Name: normName, Shape: []int{c.HiddenSize}, NoDecay: true})
	specs = append(specs, c.headSpecs()...)
	for i := range c.Layers {
		specs = append(specs, c.loraSpecs(i)...)
	}
	return specs
}

func (c *Config) layerSpecs(layer int) (specs []ParamSpec) {
	prefix := fmt.Sprintf("model.layers.%d.", layer)
	vector := func(name string, n int) {
		specs = append(specs, ParamSpec{Name: prefix + name, Shape: []int{n}, NoDecay: true})
	}
	linear := func(name string, in, out int, bias bool) {
		specs = append(specs, ParamSpec{Name: prefix + name + ".weight", Shape: []int{out, in}})
		if bias {
			vector(name+".bias", out)
		}
	}
	h, q, kv, mlp := c.HiddenSize, c.Heads*c.HeadDim, c.KVHeads*c.HeadDim, c.IntermediateSize
	vector("input_layernorm.weight", h)
	if c.joins() {
		linear("self_attn.qkv_proj", h, q+2*kv, c.QKVBias)
	} else {
		linear("self_attn.q_proj", h, q, c.QKVBias)
		linear("self_attn.k_proj", h, kv, c.QKVBias)
		linear("self_attn.v_proj", h, kv, c.QKVBias)
	}
	linear("self_attn.o_proj", q, h, c.OBias)
	if c.QKNorm {
		vector("self_attn.q_norm.weight", c.HeadDim)
		vector("self_attn.k_norm.weight", c.HeadDim)
	}
	vector("post_attention_layernorm.weight", h)
	if c.outerNorms() {
		vector("pre_feedforward_layernorm.weight", h)
	}
	switch {
	case c.Experts > 0:
		names := c.family().experts
		linear(names.router(), h, c.Experts, false)
		for e := range c.Experts {
			gate, up, down := names.of(e)
			linear(gate, h, c.ExpertSize, false)
			linear(up, h, c.ExpertSize, false)
			linear(down, c.ExpertSize, h, false)
		}
		return specs
	case c.joins():
		linear("mlp.gate_up_proj", h, 2*mlp, c.MLPBias)
	default:
		linear("mlp.gate_proj", h, mlp, c.MLPBias)
		linear("mlp.up_proj", h, mlp, c.MLPBias)
	}
	linear("mlp.down_proj", mlp, h, c.MLPBias)
	if c.outerNorms() {
		vector("post_feedforward_layernorm.weight", h)
	}
	return specs
}

// ParamCount is the number of elements of all tensors.
func (c *Config) ParamCount() int { return c.Info().Parameters }

// WeightBytes is the memory that the weights take, without their list: a config can ask for more than there is.
func (c *Config) WeightBytes() float64 {
	one, all := *c, 0.0
	one.Layers = 0
	for _, s := range one.ParamSpecs() {
		all += s.elements()
	}
	for _, s := range c.layerSpecs(0) {
		all += s.elements() * float64(c.Layers)
	}
	return 4 * all
}

func (s ParamSpec) elements() float64 {
	n := 1.0
	for _, side := range s.Shape {
		n *= float64(side)
	}
	return n
}

// EmbedTable is the index in Params of the embedding's table.
func (c *Config) EmbedTable() int { return 0 }

// HeadTable is the index in Params of the head's table, which is the embedding's if they are tied; of a reward model,
// of the head's row or rows.
func (c *Config) HeadTable() int {
	if c.TieEmbeddings {
		return 0
	}
	return c.normIndex() + 1
}

// normIndex is the index in Params of the last norm.
func (c *Config) normIndex() int { return 1 + c.Layers*len(c.layerSpecs(0)) }

func (m *Model) EmbedTable() int { return m.Config.EmbedTable() }
func (m *Model) HeadTable() int  { return m.Config.HeadTable() }

// Init makes a model with random weights, as transformers does: matrices normal with standard deviation
// initializer_range, norms one (gemma's zero, since they multiply by 1 + weight), biases zero. A tensor's weights
// depend on the seed and its name only.
func Init(c *Config, seed uint64) *Model {
	m := &Model{Config: c}
	for _, s := range c.ParamSpecs() {
		p := newParam(s)
		switch {
		case !s.NoDecay:
			fillNormal(p, c.InitRange, seed)
		case strings.HasSuffix(s.Name, "weight") && !c.gemma(): // a norm
			for i := range p.Data {
				p.Data[i] = 1
			}
		}
		m.Params = append(m.Params, p)
	}
	return m
}

// Weightless is a model without weights: its tensors have names and shapes alone.
func Weightless(c *Config) *Model {
	m := &Model{Config: c}
	for _, s := range c.ParamSpecs() {
		m.Params = append(m.Params, &Param{Name: s.Name, Shape: s.Shape, NoDecay: s.NoDecay})
	}
	return m
}

// HasWeights says that the model's weights are in memory or in a file that is open.
func (m *Model) HasWeights() bool { return m.Params[0].Data != nil || m.Params[0].file != nil }

func newParam(s ParamSpec) *Param {
	return &Param{Name: s.Name, Shape: s.Shape, NoDecay: s.NoDecay, Data: make([]float32, s.Size())}
}

func fillNormal(p *Param, deviation float64, seed uint64) {
	r := generator(p, seed)
	for i := range p.Data {
		p.Data[i] = float32(r.NormFloat64() * deviation)
	}
}

// generator draws a tensor's weights.
func generator(p *Param, seed uint64) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(p.Name))
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}
