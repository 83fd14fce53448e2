package model

import (
	"fmt"
	"slices"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/backend/backendtest"
)

// chunks reads a prompt in chunks into row 1 of a cache of three rows, which holds other numbers.
type chunks struct {
	ChunkGraphs
	prompt []int32
	cache  [][]float32 // keys and values of every layer

	engine   *backend.Engine
	model    *Model
	programs map[string]*backend.Program
}

func newPieces(e *backend.Engine, m *Model, prompt []int32, inGraph bool, o GraphOptions) *chunks {
	c, shape := m.Config, ChunkShape{Rows: 3, Slots: 32, Tokens: 8, InGraph: inGraph}
	graphs := ChunkGraphs{c, shape, o, dtypes.Float32, e.Wants.HostRows}
	p := &chunks{graphs, prompt, nil, e, m, map[string]*backend.Program{}}
	for range 2 * c.Layers {
		x := make([]float32, p.Rows*c.KVHeads*p.Slots*c.HeadDim)
		for i := range x {
			x[i] = float32(i%7 - 3)
		}
		p.cache = append(p.cache, x)
	}
	return p
}

// read gives the head after the last chunk.
func (p *chunks) read(t *testing.T) (head [][]float32) {
	t.Helper()
	held := weights(t, p.engine, p.model)
	defer backend.FinalizeAll(held...)
	of := func(places []int) (some []compute.Buffer) {
		for _, i := range places {
			some = append(some, held[i])
		}
		return some
	}
	for at := 0; at < len(p.prompt); at += p.Tokens {
		n := min(p.Tokens, len(p.prompt)-at)
		in := p.tokens(at)
		if !p.HostRows {
			in = append(of([]int{p.EmbedTable()}), in...)
		}
		x := p.run(t, "embed", p.Embed, in)
		for _, group := range p.LayerGroups() {
			out := p.readGroup(t, of, group, at, x)
			x = out[:1]
			for i, b := range out[1:] {
				p.take(t, 2*group.First+i, at, b)
			}
		}
		in = []compute.Buffer{must(p.engine.Int32([]int32{int32(n - 1)}, 1)), must(p.engine.Float32([]float32{1.25}, 1, 1))}
		head = nil
		for _, b := range p.run(t, "head", p.Head, slices.Concat(of(p.HeadTensors()), in, x)) {
			head = append(head, slices.Clone(must(backend.Floats(b))))
		}
	}
	return head
}

func (p *chunks) readGroup(t *testing.T, of func(places []int) []compute.Buffer, group LayerGroup, at int,
	x []compute.Buffer) []compute.Buffer {
	t.Helper()
	graphs := p.ChunkGraphs
	graphs.Blocks = graphs.BlocksAt(at)
	var weights, cache []compute.Buffer
	for layer := group.First; layer < group.End; layer++ {
		weights, cache = append(weights, of(p.LayerTensors(layer))...), append(cache, p.layer(layer)...)
	}
	in := append(weights, must(p.engine.Int32([]int32{1, int32(at)}, 2)))
	return p.run(t, fmt.Sprint(group.Size(), graphs.Blocks),
		func(g *graph.Graph) []*graph.Node { return graphs.Layers(g, group) }, slices.Concat(in, x, cache))
}

// run runs a program, which it compiles the first time.
func (p *chunks) run(t *testing.T, name string, build func(g *graph.Graph) []*graph.Node,
	in []compute.Buffer) []compute.Buffer {
	t.Helper()
	if p.programs[name] == nil {
		p.programs[name] = compile(t, p.engine, name, build)
	}
	out, err := p.programs[name].Run(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { backend.FinalizeAll(out...) })
	return out
}

func (p *chunks) tokens(at int) []compute.Buffer {
	ids := make([]int32, p.Tokens)
	copy(ids, p.prompt[at:])
	if !p.HostRows {
		return []compute.Buffer{must(p.engine.Int32(ids, 1, len(ids)))}
	}
	rows := copyRows(p.model.Params[0].Data, ids, p.HiddenSize)
	return []compute.Buffer{must(p.engine.Float32(rows, len(ids), p.HiddenSize))}
}

// layer has the keys and values of a layer.
func (p *chunks) layer(layer int) (in []compute.Buffer) {
	for i, x := range p.cache[2*layer : 2*layer+2] {
		dtype, dims := dtypes.Float32, []int{p.Rows, p.KVHeads, p.Slots, p.HeadDim}
		if p.InGraph {
			dtype = p.Options.dtype()
		} else if i == 0 {
			dims[2], dims[3] = dims[3], dims[2]
		}
		in = append(in, must(p.engine.Floats(dtype, x, dims...)))
	}
	return in
}

// take puts what a layer returns for keys or values into the cache. Other rows must keep what they hold.
func (p *chunks) take(t *testing.T, i, at int, b compute.Buffer) {
	t.Helper()
	x, row := slices.Clone(must(backend.Floats(b))), len(p.cache[i])/p.Rows
	if p.InGraph {
		if !slices.Equal(x[:row], p.cache[i][:row]) || !slices.Equal(x[2*row:], p.cache[i][2*row:]) {
			t.Fatalf("position %d, output %d: other rows of the cache changed", at, i)
		}
		p.cache[i] = x
		return
	}
	copySlots(p.Config, p.cache[i][row:], p.Slots, at, x, p.Tokens, p.Tokens, i%2 == 0)
}

// copySlots copies the first n of the source's slots to those from at on; keys are turned.
func copySlots(c *Config, to []float32, slots, at int, from []float32, tokens, n int, turned bool) {
	for h := range c.KVHeads {
		to, from := to[h*c.HeadDim*slots:], from[h*c.HeadDim*tokens:]
		if !turned {
			copy(to[at*c.HeadDim:], from[:n*c.HeadDim])
			continue
		}
		for d := range c.HeadDim {
			copy(to[d*slots+at:], from[d*tokens:][:n])
		}
	}
}

// check compares the head and the cache with those of a prefill of the whole prompt.
func (p *chunks) check(t *testing.T, head, want [][]float32, tokens int, limit float64) {
	t.Helper()
	for i, got := range head {
		near(t, fmt.Sprint("output ", i), worst(got, want[i]), limit)
	}
	for i, whole := range want[4:] {
		row, turned := len(p.cache[i])/p.Rows, i%2 == 0 && !p.InGraph
		expected := slices.Clone(p.cache[i][row : 2*row])
		copySlots(p.Config, expected, p.Slots, 0, whole, tokens, len(p.prompt), turned)
		near(t, fmt.Sprint("keys or values ", i), worst(p.cache[i][row:2*row], expected), limit)
	}
}

// A prefill in chunks gives the head, keys and values of a whole one, for all model types, windows shorter than a chunk
// and both places of the cache. The last chunk is not full.
func TestPieces(t *testing.T) {
	onEngines(t, func(t *testing.T, e *backend.Engine) {
		for name, m := range piecedModels(t) {
			if name != "qwen2" && !backendtest.AllVariants(t, e) {
				continue
			}
			t.Run(name, func(t *testing.T) {
				for _, inGraph := range []bool{false, true} {
					if !inGraph && !e.Wants.SharedMemory {
						continue
					}
					comparePieces(t, e, m, inGraph, GraphOptions{}, 2e-5)
				}
			})
		}
	})
}

// In float64 nothing but the order of sums differs, and the cache is rounded to float32.
func TestPiecesInFloat64(t *testing.T) {
	for name, m := range piecedModels(t) {
		t.Run(name, func(t *testing.T) {
			comparePieces(t, backendtest.Go(t), m, false, GraphOptions{DType: dtypes.Float64}, 2e-6)
		})
	}
}

// piecedModels has windows shorter than a chunk and longer.
func piecedModels(t *testing.T) map[string]*Model {
	models := variedModels(t)
	models["long window"] = sharpModel(t, "mistral", "sliding_window", 11)
	return models
}

func comparePieces(t *testing.T, e *backend.Engine, m *Model, inGraph bool, o GraphOptions, limit float64) {
	t.Helper()
	c := texts(1)
	c.inGraph, c.options, c.answers = inGraph, o, nil
	c.prompts = [][]int32{nil}
	for j := range 21 {
		c.prompts[0] = append(c.prompts[0], int32(3+(5*j+j*j)%29))
	}
	p := newPieces(e, m, c.prompts[0], inGraph, o)
	p.check(t, p.read(t), c.prefill(t, e, m), c.promptTokens(), limit)
}
