package model

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/float"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// TestDrawsInTheGraph: the token is the first whose cumulative probability exceeds the draw, up to rounding, or the
// first likeliest; its log-prob is at temperature 1. The vocabulary has several groups of blocks, and a short last
// block.
func TestDrawsInTheGraph(t *testing.T) {
	onEngines(t, func(t *testing.T, e *backend.Engine) {
		const rows, hidden, vocabulary = 40, 8, 64*SampleBlock + 100
		c := &Config{VocabSize: vocabulary}
		p := compile(t, e, "head", func(g *graph.Graph) []*graph.Node {
			input := func(name string, dims ...int) *graph.Node {
				return graph.Parameter(g, name, shapes.Make(dtypes.Float32, dims...))
			}
			return c.sampleHead(input("x", rows, hidden), input("table", vocabulary, hidden), input("inverse", rows, 1),
				input("draw", rows, 1)).nodes()
		})
		r := rand.New(rand.NewPCG(3, 4))
		random := func(n int) []float32 {
			x := make([]float32, n)
			for i := range x {
				x[i] = float32(r.NormFloat64())
			}
			return x
		}
		x, inverse, draws := random(rows*hidden), make([]float32, rows), make([]float32, rows)
		for i := range rows {
			inverse[i], draws[i] = []float32{0.5, 1, 3}[i%3], r.Float32()
		}
		draws[0], draws[1], draws[2], draws[3], draws[4] = -1, -1, 0, math.Nextafter32(1, 0), -1
		clear(x[4*hidden : 6*hidden]) // all logits are equal
		in := []compute.Buffer{must(e.Float32(x, rows, hidden)),
			must(e.Float32(random(vocabulary*hidden), vocabulary, hidden)),
			must(e.Float32(inverse, rows, 1)), must(e.Float32(draws, rows, 1))}
		out := expect.Must(p.Run(in, nil))(t)
		defer backend.FinalizeAll(slices.Concat(in, out)...)
		logits, tokens, logps := must(backend.Floats(out[0])), must(backend.Ints(out[4])), must(backend.Floats(out[5]))
		for i := range rows {
			checkDraw(t, i, logits[i*vocabulary:(i+1)*vocabulary], inverse[i], draws[i], tokens[i], logps[i])
		}
	})
}

// checkDraw compares a draw with the draw by exact sums.
func checkDraw(t *testing.T, row int, z []float32, inverse, draw float32, token int32, logp float32) {
	t.Helper()
	top, total, ones, before := float64(slices.Max(z)), 0.0, 0.0, 0.0
	for i, v := range z {
		w := float.Exp((float64(v) - top) * float64(inverse))
		if total += w; i < int(token) {
			before += w
		}
		ones += float.Exp(float64(v) - top)
	}
	if want := float64(z[token]) - top - math.Log(ones); math.Abs(float64(logp)-want) > 1e-5 {
		t.Errorf("row %d: log-prob %v, want %v", row, logp, want)
	}
	if first := slices.Index(z, float32(top)); draw < 0 {
		if int(token) != first {
			t.Errorf("row %d: token %d, want the first likeliest, %d", row, token, first)
		}
		return
	}
	own := float.Exp((float64(z[token]) - top) * float64(inverse))
	if u := float64(draw) * total; u < before-1e-5*total || u > before+own+1e-5*total {
		t.Errorf("row %d: token %d at %v to %v, the draw is at %v", row, token, before/total, (before+own)/total, draw)
	}
}
