package model

import (
	"math"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// The mask of a row of two groups, the first with two answers, equals visible.
func TestVisibility(t *testing.T) {
	p := packRows([][]group{{{[]int32{1, 2, 3}, [][]int32{{4, 5}, {6, 7, 8}}}, {[]int32{9, 9}, [][]int32{{9, 9}}}}}, 2)
	onEngines(t, func(t *testing.T, e *backend.Engine) {
		for _, window := range []int{0, 2, 3} {
			got := evaluate(t, e, tiny(t, "llama"), p, 1, func(_ []*graph.Node, in Inputs) []*graph.Node {
				return []*graph.Node{visibility(in, window)}
			})[0][0]
			for i := range p.tokens {
				for j := range p.tokens {
					want := float32(maskedScore)
					if isVisible(p, i, j, window) {
						want = 0
					}
					if got[i*p.tokens+j] != want {
						t.Errorf("window %d: mask[%d][%d] = %g, want %g", window, i, j, got[i*p.tokens+j], want)
					}
				}
			}
		}
	})
}

// isVisible reports whether position i of the first row sees position j.
func isVisible(p packed, i, j, window int) bool {
	switch {
	case i == j:
		return true
	case j > i, p.groups[i] == -1, p.groups[i] != p.groups[j]:
		return false
	case window > 0 && int(p.positions[i]-p.positions[j]) >= window:
		return false
	}
	return p.segments[j] == 0 || p.segments[j] == p.segments[i]
}

// Padding positions and slots do not change the log-probs of others, and have finite values themselves.
func TestPaddingIsInert(t *testing.T) {
	onEngines(t, func(t *testing.T, e *backend.Engine) {
		m := sharpModel(t, "mistral", "sliding_window", 4)
		g := []group{{[]int32{5, 6, 7}, [][]int32{{8, 9, 2}, {9, 2}}}}
		tight, loose := logProbsOf(t, e, m, pack(g, true, 0), GraphOptions{}),
			logProbsOf(t, e, m, pack(g, true, 5), GraphOptions{})
		near(t, "log-probs", worst(loose[:len(tight)], tight), 1e-6)
		for _, v := range loose {
			if x := float64(v); math.IsNaN(x) || math.IsInf(x, 0) {
				t.Errorf("log-prob %v of a padding slot, want a finite number", v)
			}
		}
	})
}

// With chunks no node holds logits of more slots than a chunk, forward or backward.
func TestNoWholeLogits(t *testing.T) {
	e, m, p := backendtest.Go(t), tiny(t, "llama"), repeatedTokens(true)
	slots, vocab := len(p.source), m.Config.VocabSize
	most := func(o GraphOptions) (rows int) {
		_, err := e.Compile("logits", func(g *graph.Graph) []*graph.Node {
			params := m.Config.Parameters(g)
			loss := graph.ReduceAllSum(m.Config.LogProbs(params, m.Config.Inputs(g, p.rows, p.tokens, slots, true), o))
			out := graph.Gradient(loss, params...)
			for _, n := range g.Nodes() {
				if s := n.Shape(); n.NumOutputs() == 1 && s.Rank() == 2 && s.Dim(1) == vocab {
					rows = max(rows, s.Dim(0))
				}
			}
			return out
		})
		expect.OK(t, err)
		return rows
	}
	if got := most(GraphOptions{HeadChunk: 4}); got != 4 {
		t.Errorf("chunks of 4: logits of %d slots at once, want at most 4", got)
	}
	if got := most(GraphOptions{}); got != slots {
		t.Errorf("a small batch: logits of %d slots, want all %d", got, slots)
	}
}

func TestHeadChunk(t *testing.T) {
	small, qwen := Config{VocabSize: 4096}, Config{VocabSize: 151936}
	if got := small.headChunk(1024, GraphOptions{}); got != 1024 {
		t.Errorf("small: %d", got)
	}
	if got := qwen.headChunk(4096, GraphOptions{}); got*qwen.VocabSize > headBytes/4 ||
		got < headBytes/4/qwen.VocabSize/2 {
		t.Errorf("qwen: %d", got)
	}
	if got := qwen.headChunk(4096, GraphOptions{HeadChunk: 10000}); got != 4096 {
		t.Errorf("given: %d", got)
	}
}

// bfloat16 stays near float32, in log-probs and in the direction of the gradient.
func TestBFloat16(t *testing.T) {
	onEngines(t, func(t *testing.T, e *backend.Engine) {
		if !e.Wants.BFloat16 {
			return // it has none
		}
		eachModel(t, variedModels(t), func(t *testing.T, i int, m *Model) {
			checkBFloat16(t, e, m, backendtest.Some(t, e, i, GraphOptions{DType: dtypes.BFloat16},
				GraphOptions{DType: dtypes.BFloat16, Checkpoint: true, HeadChunk: 5}))
		})
	})
}

func checkBFloat16(t *testing.T, e *backend.Engine, m *Model, forms []GraphOptions) {
	p := repeatedTokens(true)
	want := plainStep(t, m, p)
	for _, o := range forms {
		got := gradientsOf(t, e, m, p, o, 1)[0]
		near(t, "log-probs", worst(got.logps, want.logps), 0.3)
		for i := range want.grads {
			if c := cosine(got.grads[i], want.grads[i]); c < 0.98 {
				t.Errorf("%s: cosine %.4f", m.Params[i].Name, c)
			}
		}
	}
}

func cosine(a, b []float32) float64 {
	var ab, aa, bb float64
	for i := range a {
		ab += float64(a[i]) * float64(b[i])
		aa += float64(a[i]) * float64(a[i])
		bb += float64(b[i]) * float64(b[i])
	}
	if aa == 0 && bb == 0 {
		return 1
	}
	return ab / math.Sqrt(aa*bb)
}

// computeAfter does not change a value if a dependency is infinite or large.
func TestAfterIsInert(t *testing.T) {
	onEngines(t, func(t *testing.T, e *backend.Engine) {
		program, err := e.Compile("after", func(g *graph.Graph) []*graph.Node {
			x := graph.Parameter(g, "x", shapes.Make(dtypes.Float32, 2, 2))
			d := graph.Parameter(g, "d", shapes.Make(dtypes.Float32, 3))
			return []*graph.Node{computeAfter(x, graph.AddScalar(d, 0), graph.Neg(d))}
		})
		expect.OK(t, err)
		defer program.Close()
		for _, d := range []float64{0, 3e38, math.Inf(1), math.Inf(-1)} {
			x := expect.Must(e.Float32([]float32{1, -2, 3, 4}, 2, 2))(t)
			dep := expect.Must(e.Float32([]float32{float32(d), 0, 0}, 3))(t)
			near(t, "value", worst(runOnce(t, program, []compute.Buffer{x, dep})[0], []float32{1, -2, 3, 4}), 0)
			backend.FinalizeAll(x, dep)
		}
	})
}

// A wrong list of weights is an error.
func TestWrongWeights(t *testing.T) {
	e, m, p := backendtest.Go(t), tiny(t, "llama"), repeatedTokens(true)
	for want, change := range map[string]func([]*graph.Node) []*graph.Node{
		"found 29 weights, want the 30": func(ps []*graph.Node) []*graph.Node { return ps[1:] },
		"weight 0 has shape": func(ps []*graph.Node) []*graph.Node {
			ps[0], ps[1] = ps[1],
				ps[0]
			return ps
		},
	} {
		_, err := e.Compile("wrong", func(g *graph.Graph) []*graph.Node {
			in := m.Config.Inputs(g, p.rows, p.tokens, len(p.source), true)
			return []*graph.Node{m.Config.Logits(change(m.Config.Parameters(g)), in, GraphOptions{})}
		})
		expect.Error(t, err, want)
	}
}

// Numbers by hand: transformers' llama3 rule for a head of 8, and the linear rule.
func TestInverseFrequencies(t *testing.T) {
	c := &Config{HeadDim: 8, RopeTheta: 10000}
	near(t, "none", worst(c.Frequencies(), []float32{1, 0.1, 0.01, 0.001}), 1e-9)
	c.RopeScaling = &RopeScaling{Type: "linear", Factor: 4}
	near(t, "linear", worst(c.Frequencies(), []float32{0.25, 0.025, 0.0025, 0.00025}), 1e-9)
	// wavelengths 6.28, 62.8, 628, 6283: kept below 256/4 = 64, divided above 256, none between
	c.RopeScaling = &RopeScaling{Type: "llama3", Factor: 8, LowFreqFactor: 1, HighFreqFactor: 4,
		OriginalMaxPositions: 256}
	near(t, "llama3", worst(c.Frequencies(), []float32{1, 0.1, 0.00125, 0.000125}), 1e-9)
	// wavelength 628 between 512 and 2048: smooth = (2048/628.3 - 1)/3 = 0.7532, 0.01*(0.2468/8 + 0.7532) = 0.0078402
	c.RopeScaling.OriginalMaxPositions = 2048
	near(t, "llama3, blended", worst(c.Frequencies(), []float32{1, 0.1, 0.0078402, 0.000125}), 2e-7)
}

// TestEmbeddingFactor: gemma's factor √H is not rounded with a table in bfloat16, so that a sampler and a policy whose
// table is float32 scale alike.
func TestEmbeddingFactor(t *testing.T) {
	c := tiny(t, "gemma2").Config
	c.HiddenSize = 5 // √5 has no few bits
	e := backendtest.Go(t)
	for _, dtype := range []dtypes.DType{dtypes.Float32, dtypes.BFloat16} {
		p, err := e.Compile("embed "+dtype.String(), func(g *graph.Graph) []*graph.Node {
			table := graph.ConvertDType(graph.Parameter(g, "table", shapes.Make(dtypes.Float32, 2, 5)), dtype)
			return []*graph.Node{graph.ConvertDType(c.embed([]*graph.Node{table}, nil,
				graph.Const(g, []int32{1})), dtypes.Float32)}
		})
		expect.OK(t, err)
		in := expect.Must(e.Float32([]float32{0, 0, 0, 0, 0, 1, 1, 1, 1, 1}, 2, 5))(t)
		if got := runOnce(t, p, []compute.Buffer{in})[0]; got[4] != float32(math.Sqrt(5)) {
			t.Errorf("%s: %v, want %v", dtype, got, math.Sqrt(5))
		}
	}
}
