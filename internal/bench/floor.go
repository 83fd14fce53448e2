package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/model"
)

// parts are the seconds of a call that samples, part by part. Each is that of a program which computes this part alone,
// or the difference between two programs, so that they are those of the fastest runs.
type parts struct {
	Prefill  float64  `json:"prefill"` // reading the prompts
	Layers   float64  `json:"layers"`  // of the steps, without the cache
	Cache    float64  `json:"cache"`   // of the steps: attention over the cached tokens, and the cache's writes
	Head     float64  `json:"head"`    // of the steps: last norm, logits, sums of the vocabulary, draws in the graph
	Compile  float64  `json:"compile"` // what the first call takes longer
	Products struct { // the matrix products by weights in it: the floor
		Prefill float64 `json:"prefill"`
		Layers  float64 `json:"layers"`
		Head    float64 `json:"head"`
	} `json:"products"`
}

func (p *parts) floor() float64 { return p.Products.Prefill + p.Products.Layers + p.Products.Head }

// alone measures programs with a model's weights alone, on zeros.
type alone struct {
	engine *backend.Engine
	config model.Config
	model.GraphOptions
}

const aloneRuns = 5

// seconds is the time of the fastest of a few runs. The last inputs, as many as kept, are the last outputs of the run
// before.
func (a alone) seconds(kept int, build func(g *graph.Graph) []*graph.Node) (fastest float64, err error) {
	var options []backend.Option
	if kept > 0 {
		options = append(options, backend.UpdateLast(kept))
	}
	p, err := a.engine.Compile("alone", build, options...)
	if err != nil {
		return 0, err
	}
	defer p.Close()
	in, err := a.zeros(p)
	if err != nil {
		return 0, err
	}
	defer func() { backend.FinalizeAll(in...) }()
	var all []float64
	for range 1 + aloneRuns {
		begin := time.Now()
		out, err := p.Run(in, nil)
		if err != nil {
			return 0, err
		}
		_, err = backend.Floats(out[0]) // when it is here, the run has ended
		all = append(all, time.Since(begin).Seconds())
		if err != nil {
			return 0, err
		}
		own := len(out) - kept
		copy(in[len(in)-kept:], out[own:])
		backend.FinalizeAll(out[:own]...)
	}
	return slices.Min(all[1:]), nil
}

// zeros are inputs of a program: ones for norms and temperatures.
func (a alone) zeros(p *backend.Program) (in []compute.Buffer, err error) {
	names, all := p.Inputs()
	for i, s := range all {
		var b compute.Buffer
		if s.DType.IsInt() {
			b, err = a.engine.Int32(make([]int32, s.Size()), s.Dimensions...)
		} else {
			x := make([]float32, s.Size())
			if strings.Contains(names[i], "norm") || strings.Contains(names[i], "inverse") {
				x = slices.Repeat([]float32{1}, len(x))
			}
			b, err = a.engine.Floats(s.DType, x, s.Dimensions...)
		}
		if err != nil {
			backend.FinalizeAll(in...)
			return nil, err
		}
		in = append(in, b)
	}
	return in, nil
}

// step is the time of a decoding step of a model with this number of layers, and a cache of prefix + suffix slots.
func (a alone) step(rows, layers, prefix, suffix int) (float64, error) {
	c := a.config
	c.Layers = layers
	s := model.StepShape{Prompts: rows, Samples: 1, Suffix: prefix + suffix, InGraph: !a.engine.Wants.SharedMemory}
	kept := 0
	if s.InGraph {
		s.Prefix, s.Suffix, kept = prefix, suffix, 2*layers
	}
	return a.seconds(kept, func(g *graph.Graph) []*graph.Node {
		params := c.ParametersIn(g, a.matrixType())
		out := c.Step(params, c.StepInputs(g, s, a.engine.Wants.HostRows, a.GraphOptions), a.GraphOptions).Nodes()
		return append([]*graph.Node{out[3]}, out...)
	})
}

func (a alone) matrixType() dtypes.DType {
	if a.engine.Wants.SharedMemory {
		return dtypes.Float32
	}
	return a.ComputeType()
}

// prefill is the time of reading prompts, of which a program reads no more than most tokens.
func (a alone) prefill(prompts, tokens, most int) (float64, error) {
	n := min(prompts, max(1, most/tokens))
	s := model.PrefillShape{Prompts: n, Tokens: tokens, InGraph: !a.engine.Wants.SharedMemory}
	seconds, err := a.seconds(0, func(g *graph.Graph) []*graph.Node {
		params := a.config.ParametersIn(g, a.matrixType())
		in := a.config.PrefillInputs(g, s, a.engine.Wants.HostRows)
		out := a.config.Prefill(params, in, a.GraphOptions).Nodes()
		return append([]*graph.Node{out[3]}, out...)
	})
	return seconds * float64(prompts) / float64(n), err
}

// fewLayers are enough to measure the products of many rows, for which it does not matter that weights are cached.
const fewLayers = 2

// products is the time of the products of rows by the weights of all layers, or by the head's: that of the faster of
// two forms, rows times weights and, for few rows of float32, weights times columns. For others no library here has
// faster products of columns, and some are very slow.
func (a alone) products(rows, layers int, head bool) (fastest float64, err error) {
	n := layers
	if rows > 256 {
		n = min(layers, fewLayers)
	}
	forms := []bool{false, true}
	if rows >= 96 || a.ComputeType() == dtypes.BFloat16 {
		forms = forms[:1]
	}
	for _, columns := range forms {
		seconds, err := a.seconds(0, func(g *graph.Graph) []*graph.Node {
			return productChain{a.config, g, a.ComputeType(), rows, columns}.nodes(n, head)
		})
		if err != nil {
			return 0, err
		}
		if layers > 0 {
			seconds *= float64(layers) / float64(n)
		}
		if fastest == 0 || seconds < fastest {
			fastest = seconds
		}
	}
	return fastest, nil
}

// productChain builds the products of a decoder by its weights and nothing else.
type productChain struct {
	model.Config
	*graph.Graph
	dtype   dtypes.DType
	rows    int
	columns bool
}

func (p productChain) nodes(layers int, head bool) []*graph.Node {
	x := p.input()
	var out []*graph.Node
	for i := range layers {
		name := func(s string) string { return fmt.Sprint(s, i) }
		kv := p.KVHeads * p.HeadDim
		out = append(out, graph.Add(p.product(x, name("k"), kv), p.product(x, name("v"), kv)))
		mixed := p.product(p.product(x, name("q"), p.Heads*p.HeadDim), name("o"), p.HiddenSize)
		gate := p.product(mixed, name("gate"), p.IntermediateSize)
		x = p.product(graph.Add(gate, p.product(mixed, name("up"), p.IntermediateSize)), name("down"), p.HiddenSize)
	}
	if head {
		x = p.product(x, "head", p.VocabSize)
	}
	first := graph.ConvertDType(graph.Slice(x, graph.AxisElem(0), graph.AxisElem(0)), dtypes.Float32)
	return append([]*graph.Node{first, x}, out...)
}

func (p productChain) input() *graph.Node {
	if p.columns {
		return graph.Parameter(p.Graph, "x", shapes.Make(p.dtype, p.HiddenSize, p.rows))
	}
	return graph.Parameter(p.Graph, "x", shapes.Make(p.dtype, p.rows, p.HiddenSize))
}

// product is x times a weight of its own.
func (p productChain) product(x *graph.Node, name string, out int) *graph.Node {
	dot := func(a, b *graph.Node, axis int) *graph.Node {
		product := graph.Dot(a, b)
		if p.dtype == dtypes.BFloat16 {
			product = product.WithAccumulatorDType(p.dtype) // the libraries add in float32 without being asked
		}
		return product.General([]int{1}, nil, []int{axis}, nil)
	}
	if p.columns {
		return dot(graph.Parameter(p.Graph, name, shapes.Make(p.dtype, out, x.Shape().Dim(0))), x, 0)
	}
	return dot(x, graph.Parameter(p.Graph, name, shapes.Make(p.dtype, out, x.Shape().Dim(1))), 1)
}

// floorTokens are enough rows for the products of a prefill.
const floorTokens = 1024

// floor measures the products of a call with n prompts.
func (d *drawer) floor(n int) (*parts, error) {
	return d.alone.floor(n, len(d.world.Prompts[0]), 1, d.world.New)
}

// floor measures the products that read n prompts of a length and draw samples of each, of fresh tokens.
func (a alone) floor(n, prompt, samples, fresh int) (p *parts, err error) {
	p = &parts{}
	rows := min(n*prompt, floorTokens)
	all, last := a.layerWeights()
	measure := func(into *float64, rows, layers int, head bool, times float64) {
		if err == nil {
			*into, err = a.products(rows, layers, head)
			*into *= times
		}
	}
	layers := a.config.Layers
	measure(&p.Products.Prefill, rows, layers, false, float64(n*prompt)/float64(rows)*(1-last/(all*float64(layers))))
	measure(&p.Products.Layers, n*samples, layers, false, float64(fresh-1))
	measure(&p.Products.Head, n*samples, 0, true, float64(fresh))
	return p, err
}

// layerWeights counts the weights of a layer's products, and those that a prefill's last layer multiplies with the
// prompts' last tokens alone.
func (a alone) layerWeights() (all, last float64) {
	c := a.config
	last = float64(c.HiddenSize * (c.Heads*c.HeadDim + 3*c.IntermediateSize))
	return last + float64(c.HiddenSize*(c.Heads+2*c.KVHeads)*c.HeadDim), last
}

// profile measures the parts of a call with n prompts.
func (d *drawer) profile(n int) (*parts, error) {
	p, err := d.floor(n)
	if err != nil {
		return nil, err
	}
	prompt, fresh := len(d.world.Prompts[0]), d.world.New
	if p.Prefill, err = d.alone.prefill(n, prompt, max(d.engine.Wants.Tokens, prompt)); err != nil {
		return nil, err
	}
	var whole, short, none float64
	layers := d.alone.config.Layers
	for _, s := range []struct {
		seconds                *float64
		layers, prefix, suffix int
	}{{&whole, layers, prompt, fresh}, {&short, layers, 0, 1}, {&none, 0, 0, 1}} {
		if *s.seconds, err = d.alone.step(n, s.layers, s.prefix, s.suffix); err != nil {
			return nil, err
		}
	}
	steps := float64(fresh - 1)
	p.Cache, p.Layers, p.Head = steps*(whole-short), steps*(short-none), steps*none
	p.Compile = d.first - d.last
	return p, nil
}

// print prints the parts of a call that takes seconds.
func (p *parts) print(out io.Writer, title string, seconds float64) {
	table(out, title, "part of a call\tseconds\tshare\tits products\tshare\t", func(w io.Writer) {
		line := func(name string, part, products float64) {
			fmt.Fprintf(w, "%s\t%.3f\t%.0f %%\t", name, part, 100*part/seconds)
			if products > 0 {
				fmt.Fprintf(w, "%.3f\t%.0f %%\t", products, 100*products/part)
			} else {
				fmt.Fprint(w, "\t\t")
			}
			fmt.Fprintln(w)
		}
		line("reading the prompts", p.Prefill, p.Products.Prefill)
		line("steps: layers without the cache", p.Layers, p.Products.Layers)
		line("steps: attention over the cache", p.Cache, 0)
		line("steps: head", p.Head, p.Products.Head)
		line("host: draws, copies, changes of program", seconds-p.Prefill-p.Layers-p.Cache-p.Head, 0)
		line("all", seconds, p.floor())
	})
	fmt.Fprintf(out, "the first call takes %.1f s longer: it compiles\n", p.Compile)
}
