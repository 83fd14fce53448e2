package model

import (
	"fmt"
	"slices"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/backend"
	"github.com/posttrain/posttrain/backend/backendtest"
)

// pieces reads a prompt in pieces into row 1 of a cache of three rows, which holds other numbers.
type pieces struct {
	shape   PieceShape
	prompt  []int32
	options GraphOptions
	cache   [][]float32 // keys and values of every layer
}

func newPieces(c *Config, prompt []int32, inGraph bool, o GraphOptions) *pieces {
	p := &pieces{PieceShape{Rows: 3, Slots: 32, Block: 16, Seen: 32, Tokens: 8, InGraph: inGraph}, prompt, o, nil}
	for range 2 * c.Layers {
		x := make([]float32, p.shape.Rows*c.KVHeads*p.shape.Slots*c.HeadDim)
		for i := range x {
			x[i] = float32(i%7 - 3)
		}
		p.cache = append(p.cache, x)
	}
	return p
}

// read gives the head after the last piece.
func (p *pieces) read(t *testing.T, e *backend.Engine, m *Model) (head [][]float32) {
	t.Helper()
	program := compile(t, e, "piece", func(g *graph.Graph) []*graph.Node {
		params := m.Config.Parameters(g)
		in := m.Config.PieceInputs(g, p.shape, e.Wants.HostRows, p.options)
		return floats(m.Config.Piece(params, in, p.options).Nodes())
	})
	for at := 0; at < len(p.prompt); at += p.shape.Tokens {
		in := append(weights(t, e, m), p.inputs(e, m, at)...)
		out := runOnce(t, program, in)
		backend.FinalizeAll(in...)
		head = out[:4]
		for i, x := range out[4:] {
			p.take(t, m.Config, i, at, x)
		}
	}
	return head
}

func (p *pieces) inputs(e *backend.Engine, m *Model, at int) (in []compute.Buffer) {
	ids, c := make([]int32, p.shape.Tokens), m.Config
	n := copy(ids, p.prompt[at:])
	if e.Wants.HostRows {
		in = append(in, must(e.Float32(copyRows(m.Params[0].Data, ids, c.HiddenSize), len(ids), c.HiddenSize)))
	} else {
		in = append(in, must(e.Int32(ids, 1, len(ids))))
	}
	in = append(in, must(e.Int32([]int32{int32(n - 1)}, 1)), must(e.Float32([]float32{1.25}, 1, 1)),
		must(e.Int32([]int32{1, int32(at)}, 2)))
	for i, x := range p.cache {
		dtype, dims := dtypes.Float32, []int{p.shape.Rows, c.KVHeads, p.shape.Slots, c.HeadDim}
		if p.shape.InGraph {
			dtype = p.options.dtype()
		} else if i%2 == 0 {
			dims[2], dims[3] = dims[3], dims[2]
		}
		in = append(in, must(e.Floats(dtype, x, dims...)))
	}
	return in
}

// take puts what a piece returns for keys or values into the cache. Other rows must keep what they hold.
func (p *pieces) take(t *testing.T, c *Config, i, at int, x []float32) {
	t.Helper()
	row := len(p.cache[i]) / p.shape.Rows
	if p.shape.InGraph {
		if !slices.Equal(x[:row], p.cache[i][:row]) || !slices.Equal(x[2*row:], p.cache[i][2*row:]) {
			t.Fatalf("position %d, output %d: other rows of the cache changed", at, i)
		}
		p.cache[i] = x
		return
	}
	copySlots(c, p.cache[i][row:], p.shape.Slots, at, x, p.shape.Tokens, p.shape.Tokens, i%2 == 0)
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
func (p *pieces) check(t *testing.T, c *Config, head, want [][]float32, tokens int, limit float64) {
	t.Helper()
	for i, got := range head {
		near(t, fmt.Sprint("output ", i), worst(got, want[i]), limit)
	}
	for i, whole := range want[4:] {
		row, turned := len(p.cache[i])/p.shape.Rows, i%2 == 0 && !p.shape.InGraph
		expected := slices.Clone(p.cache[i][row : 2*row])
		copySlots(c, expected, p.shape.Slots, 0, whole, tokens, len(p.prompt), turned)
		near(t, fmt.Sprint("keys or values ", i), worst(p.cache[i][row:2*row], expected), limit)
	}
}

// A prefill in pieces gives the head, keys and values of a whole one, for all model types, windows shorter than a piece
// and both places of the cache. The last piece is not full.
func TestPieces(t *testing.T) {
	onEngines(t, func(t *testing.T, e *backend.Engine) {
		for name, m := range piecedModels(t) {
			if name != "qwen2" && !backendtest.AllVariants(e) {
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

// piecedModels has windows shorter than a piece and longer.
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
	p := newPieces(m.Config, c.prompts[0], inGraph, o)
	head := p.read(t, e, m)
	p.check(t, m.Config, head, c.prefill(t, e, m), c.promptTokens(), limit)
}
