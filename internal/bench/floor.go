package main

import (
	"fmt"
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

// alone measures programs with a model's weights alone, on zeros.
type alone struct {
	engine *backend.Engine
	config model.Config
	model.GraphOptions
}

const aloneRuns = 5

// seconds is the time of the fastest of a few runs.
func (a alone) seconds(build func(g *graph.Graph) []*graph.Node) (fastest float64, err error) {
	p, err := a.engine.Compile("alone", build)
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
		backend.FinalizeAll(out...)
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
		seconds, err := a.seconds(func(g *graph.Graph) []*graph.Node {
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
func (d *drawer) floor(n int) (seconds float64, err error) {
	return d.alone.floor(n, len(d.world.Prompts[0]), 1, d.world.New)
}

// floor is the time of the products that read n prompts of a length and draw samples of each, of fresh tokens.
func (a alone) floor(n, prompt, samples, fresh int) (seconds float64, err error) {
	rows := min(n*prompt, floorTokens)
	all, last := a.layerWeights()
	measure := func(rows, layers int, head bool, times float64) {
		if err == nil {
			var one float64
			one, err = a.products(rows, layers, head)
			seconds += one * times
		}
	}
	layers := a.config.Layers
	measure(rows, layers, false, float64(n*prompt)/float64(rows)*(1-last/(all*float64(layers))))
	measure(n*samples, layers, false, float64(fresh-1))
	measure(n*samples, 0, true, float64(fresh))
	return seconds, err
}

// layerWeights counts the weights of a layer's products, and those that a prefill's last layer multiplies with the
// prompts' last tokens alone.
func (a alone) layerWeights() (all, last float64) {
	c := a.config
	last = float64(c.HiddenSize * (c.Heads*c.HeadDim + 3*c.IntermediateSize))
	return last + float64(c.HiddenSize*(c.Heads+2*c.KVHeads)*c.HeadDim), last
}
