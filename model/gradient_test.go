package model

import (
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// relative is the largest difference, relative to the largest value of want.
func relative(got, want []float32) float64 {
	top := 0.0
	for _, v := range want {
		top = math.Max(top, math.Abs(float64(v)))
	}
	if top == 0 {
		return worst(got, want)
	}
	return worst(got, want) / top
}

// sameStep compares log-probs absolutely and each gradient relative to its tensor's maximum.
func sameStep(t testing.TB, m *Model, got, want step, logps, grads float64) {
	t.Helper()
	n := min(len(got.logps), len(want.logps))
	near(t, "log-probs", worst(got.logps[:n], want.logps[:n]), logps)
	for i, p := range m.Params {
		near(t, p.Name, relative(got.grads[i], want.grads[i]), grads)
	}
}

// repeatedTokens is a padded batch in which a prompt occurs twice and tokens many times.
func repeatedTokens(share bool) packed {
	prompt := []int32{5, 5, 6, 5, 7, 7, 7, 5, 9, 5}
	return pack([]group{
		{prompt, [][]int32{{3, 3, 5, 3, 2}, {4, 3, 3, 4, 4, 4, 2}}},
		{prompt[:4], [][]int32{{5, 6, 5, 6, 2}, {6, 6, 2}}},
	}, share, 4)
}

// sharpModel is a tiny random model whose attention and logits are far from uniform.
func sharpModel(t testing.TB, modelType string, pairs ...any) *Model {
	m := tiny(t, modelType, pairs...)
	r := rand.New(rand.NewPCG(3, 4))
	for _, p := range m.Params {
		for i := range p.Data {
			p.Data[i] = float32(0.3 * r.NormFloat64())
			if p.NoDecay && strings.HasSuffix(p.Name, "weight") && !m.Config.gemma() {
				p.Data[i]++
			}
		}
	}
	return m
}

// variedModels are models that together use every option of the graph.
func variedModels(t testing.TB) map[string]*Model {
	return map[string]*Model{
		"llama":   sharpModel(t, "llama", "attention_bias", true, "mlp_bias", true, "tie_word_embeddings", true),
		"mistral": sharpModel(t, "mistral", "sliding_window", 4),
		"qwen2":   sharpModel(t, "qwen2", "use_sliding_window", true, "sliding_window", 5, "max_window_layers", 1),
		"qwen3":   sharpModel(t, "qwen3", "head_dim", 6, "tie_word_embeddings", true),
		"gemma2": sharpModel(t, "gemma2", "head_dim", 6, "sliding_window", 4, "tie_word_embeddings", true,
			"query_pre_attn_scalar", 5, "attn_logit_softcapping", 2.0, "final_logit_softcapping", 3.0),
		"gemma3": sharpModel(t, "gemma3_text", "head_dim", 6, "sliding_window", 4, "sliding_window_pattern", 2,
			"rope_local_base_freq", 100.0, "tie_word_embeddings", true, "query_pre_attn_scalar", 5),
		"phi3": sharpModel(t, "phi3", "head_dim", 8, "partial_rotary_factor", 0.5, "sliding_window", 6,
			"original_max_position_embeddings", 64, "rope_scaling", map[string]any{"type": "longrope",
				"short_factor": []float64{1, 2}, "long_factor": []float64{2, 4}}),
		"mixtral": sharpModel(t, "mixtral", "num_local_experts", 4, "num_experts_per_tok", 2),
	}
}

// eachModel runs a subtest for each model, in the order of their names.
func eachModel(t *testing.T, models map[string]*Model, f func(t *testing.T, i int, m *Model)) {
	for i, name := range slices.Sorted(maps.Keys(models)) {
		t.Run(name, func(t *testing.T) { f(t, i, models[name]) })
	}
}

// plainStep is one step of the go engine without options, which other engines and options must equal.
func plainStep(t *testing.T, m *Model, p packed) step {
	t.Helper()
	return gradientsOf(t, backendtest.Go(t), m, p, GraphOptions{}, 1)[0]
}

// On every engine, twenty runs of one step with repeated tokens equal float64, and each other to the bit.
func TestGradientsOfRepeatedTokens(t *testing.T) {
	exact := backendtest.Go(t)
	for name, m := range variedModels(t) {
		t.Run(name, func(t *testing.T) {
			p := repeatedTokens(true)
			want := gradientsOf(t, exact, m, p, GraphOptions{DType: dtypes.Float64}, 1)[0]
			onEngines(t, func(t *testing.T, e *backend.Engine) {
				runs, limit := gradientsOf(t, e, m, p, GraphOptions{}, 20), 1e-5
				if e.Name == "xla" { // k_proj.bias is a small difference of large numbers
					limit = 5e-5
				}
				for _, run := range runs {
					sameStep(t, m, run, want, 1e-5, limit)
					for i := range run.grads {
						if !slices.Equal(run.grads[i], runs[0].grads[i]) {
							t.Fatalf("the gradient of %s differs between runs", m.Params[i].Name)
						}
					}
				}
			})
		})
	}
}

// The engines agree on the fixtures: logits within 1e-4, gradients within 1e-4 of each tensor's maximum.
func TestEnginesAgree(t *testing.T) {
	exact, fast := backendtest.Go(t), backendtest.ONNX(t)
	for _, dir := range fixtures(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			m, o := load(t, dir), readOracle(t, dir)
			p := pack(o.pairs(), true, 2)
			a, b := logitsOf(t, exact, m, p), logitsOf(t, fast, m, p)
			near(t, "logits", worst(slices.Concat(a...), slices.Concat(b...)), 1e-4)
			sameStep(t, m, gradientsOf(t, fast, m, p, GraphOptions{}, 1)[0],
				gradientsOf(t, exact, m, p, GraphOptions{}, 1)[0], 1e-4, 1e-4)
		})
	}
}

// A prompt with its answers in one row gives the same as one row for each answer, and so do two such groups.
func TestSharedPrefix(t *testing.T) {
	prompt := []int32{5, 8, 6, 5, 7, 12, 7, 5, 9, 5}
	groups := []group{
		{prompt, [][]int32{{3, 30, 5, 3, 2}, {4, 31, 3, 4, 8, 4, 2}, {10, 2}, {3, 30, 6, 6, 6, 2}}},
		{prompt[3:6], [][]int32{{5, 6, 5, 6, 2}, {6, 6, 2}}},
		{prompt[:1], [][]int32{{1, 2}, {2}}},
	}
	forms := []packed{pack(groups, true, 3), packRows([][]group{groups[:2], groups[2:]}, 3)}
	onEngines(t, func(t *testing.T, e *backend.Engine) {
		eachModel(t, variedModels(t), func(t *testing.T, i int, m *Model) {
			want := plainStep(t, m, pack(groups, false, 0))
			for _, p := range backendtest.Some(t, e, i, forms...) {
				sameStep(t, m, gradientsOf(t, e, m, p, GraphOptions{}, 1)[0], want, 1e-5, 5e-5)
			}
		})
	})
}

// Chunks of the head and recomputed layers change results by rounding only.
func TestHeadChunksAndCheckpointing(t *testing.T) {
	p := repeatedTokens(true)
	forms := []GraphOptions{{Checkpoint: true, HeadChunk: 7}, {HeadChunk: len(p.source) - 1}, {HeadChunk: 1},
		{HeadChunk: 5}, {Checkpoint: true}}
	sameInForms(t, p, forms, 1e-5, 5e-5)
}

// sameInForms holds the steps of all models in some forms against plain ones.
func sameInForms(t *testing.T, p packed, forms []GraphOptions, logps, grads float64) {
	t.Helper()
	onEngines(t, func(t *testing.T, e *backend.Engine) {
		eachModel(t, variedModels(t), func(t *testing.T, i int, m *Model) {
			want := plainStep(t, m, p)
			for _, o := range backendtest.Some(t, e, i, forms...) {
				sameStep(t, m, gradientsOf(t, e, m, p, o, 1)[0], want, logps, grads)
			}
		})
	})
}

// A check of every gradient by float64 forward passes alone: along a random direction, the loss changes by the
// gradient's dot product with it.
func TestGradientsByFiniteDifferences(t *testing.T) {
	e := backendtest.Go(t)
	for name, m := range variedModels(t) {
		t.Run(name, func(t *testing.T) {
			p := repeatedTokens(true)
			for _, block := range []int{0, 7} {
				o := GraphOptions{DType: dtypes.Float64, AttentionBlock: block}
				grads := gradientsOf(t, e, m, p, o, 1)[0].grads
				for i, param := range m.Params {
					got, slope := slopeAlong(t, e, m, p, i, grads[i])
					if math.Abs(got-slope) > 2e-3*math.Max(math.Abs(slope), 1e-2) {
						t.Errorf("%s, blocks of %d: got slope %.6g, want %.6g by the gradient", param.Name, block, got,
							slope)
					}
				}
			}
		})
	}
}

// slopeAlong moves a tensor in a random direction and gives the loss's slope and the slope that the gradient predicts.
func slopeAlong(t *testing.T, e *backend.Engine, m *Model, p packed, i int, grad []float32) (got, predicted float64) {
	t.Helper()
	const h = 1e-4 // the soft caps and the wide embeddings of gemma bend the loss
	r := rand.New(rand.NewPCG(7, uint64(i)))
	kept, sum := m.Params[i].Data, map[float64]float64{}
	moved := [2][]float32{slices.Clone(kept), slices.Clone(kept)}
	for k := range kept {
		d := float32(h * r.NormFloat64())
		moved[0][k], moved[1][k] = kept[k]+d, kept[k]-d
		predicted += (float64(moved[0][k]) - float64(moved[1][k])) / (2 * h) * float64(grad[k])
	}
	for side, data := range moved {
		m.Params[i].Data = data
		logps := logProbs64(t, e, m, p)
		for s, w := range p.slotWeights() {
			sum[float64(1-2*side)] += float64(w) * logps[s]
		}
	}
	m.Params[i].Data = kept
	return (sum[1] - sum[-1]) / (2 * h), predicted
}

func logProbs64(t *testing.T, e *backend.Engine, m *Model, p packed) []float64 {
	t.Helper()
	program, err := e.Compile("float64", func(g *graph.Graph) []*graph.Node {
		params := m.Config.Parameters(g)
		in := m.Config.Inputs(g, p.rows, p.tokens, len(p.source), e.Wants.HostRows)
		return []*graph.Node{m.Config.LogProbs(params, in, GraphOptions{DType: dtypes.Float64})}
	})
	expect.OK(t, err)
	defer program.Close()
	out := expect.Must(program.Run(append(weights(t, e, m), p.inputs(t, e, m)...), nil))(t)
	values := make([]float64, len(p.source))
	expect.OK(t, out[0].ToFlatData(values))
	return values
}

// Each hand-written gradient equals GoMLX's gradient of the same formula.
func TestOwnGradients(t *testing.T) {
	for name, k := range ownGradients {
		t.Run(name, func(t *testing.T) {
			onEngines(t, func(t *testing.T, e *backend.Engine) { compareGradients(t, e, k) })
		})
	}
}

type gradientCase struct {
	shapes     [][]int
	own, plain func(xs []*graph.Node) *graph.Node
}

// ownGradients pairs each function with a hand-written gradient with its formula in plain GoMLX.
var ownGradients = map[string]gradientCase{
	"linear": {[][]int{{5, 4}, {3, 4}},
		func(xs []*graph.Node) *graph.Node { return linear(xs[0], xs[1]) },
		func(xs []*graph.Node) *graph.Node { return graph.MatMul(xs[0], graph.Transpose(xs[1], 0, 1)) }},
	"rmsNorm": {[][]int{{5, 4}, {4}},
		func(xs []*graph.Node) *graph.Node { return rmsNorm(xs[0], xs[1], 1e-2) },
		func(xs []*graph.Node) *graph.Node {
			mean := graph.ReduceAndKeep(graph.Square(xs[0]), graph.ReduceMean, -1)
			return graph.Mul(graph.Div(xs[0], graph.Sqrt(graph.AddScalar(mean, 1e-2))), graph.Reshape(xs[1], 1, 4))
		}},
	"swiglu": {[][]int{{5, 4}, {5, 4}},
		func(xs []*graph.Node) *graph.Node { return swiglu(xs[0], xs[1]) },
		func(xs []*graph.Node) *graph.Node { return graph.Mul(graph.Mul(xs[0], graph.Sigmoid(xs[0])), xs[1]) }},
	"geglu": {[][]int{{5, 4}, {5, 4}},
		func(xs []*graph.Node) *graph.Node { return geglu(xs[0], xs[1]) },
		func(xs []*graph.Node) *graph.Node {
			a := xs[0]
			cubic := graph.MulScalar(graph.Mul(a, graph.Mul(a, a)), 0.044715)
			inner := graph.MulScalar(graph.Add(a, cubic), math.Sqrt(2/math.Pi))
			return graph.Mul(graph.Mul(graph.MulScalar(a, 0.5), graph.OnePlus(graph.Tanh(inner))), xs[1])
		}},
	"attention":                  mixCase(false, 0, 6),
	"attention in 2 blocks":      mixCase(false, 0, 3, 6),
	"attention in 3 blocks":      mixCase(false, 0, 1, 4, 6),
	"attention, again":           mixCase(true, 0, 6),
	"attention in 3, again":      mixCase(true, 0, 1, 4, 6),
	"capped attention, again":    mixCase(true, 2, 4, 6),
	"capped attention":           mixCase(false, 2, 6),
	"capped attention in blocks": mixCase(false, 2, 4, 6),
	"rotation": {[][]int{{2, 3, 4, 6}},
		func(xs []*graph.Node) *graph.Node { return testRotation(xs[0]).apply(xs[0]) },
		func(xs []*graph.Node) *graph.Node {
			x, r := xs[0], testRotation(xs[0])
			a, b := graph.SliceAxis(x, -1, graph.AxisRange(0, 3)), graph.SliceAxis(x, -1, graph.AxisRange(3, 6))
			return graph.Add(graph.Mul(x, r.cos), graph.Mul(graph.Concatenate([]*graph.Node{graph.Neg(b), a}, -1),
				r.sin))
		}},
	"rowsAt": {[][]int{{4, 3}},
		func(xs []*graph.Node) *graph.Node {
			return rowsAt(xs[0], graph.Const(xs[0].Graph(), []int32{2, 0, 3}),
				graph.Const(xs[0].Graph(), []int32{1, 3, 0, 2}), 1)
		},
		func(xs []*graph.Node) *graph.Node {
			row := func(i int) *graph.Node { return graph.SliceAxis(xs[0], 0, graph.AxisRange(i, i+1)) }
			return graph.Concatenate([]*graph.Node{row(2), row(0), row(3)}, 0)
		}},
	"rowsAt in blocks": {[][]int{{6, 3}},
		func(xs []*graph.Node) *graph.Node {
			return rowsAt(xs[0], graph.Const(xs[0].Graph(), []int32{2, 0, 1, 2}),
				graph.Const(xs[0].Graph(), []int32{1, 2, 0, 2, 0, 1}), 2)
		},
		func(xs []*graph.Node) *graph.Node {
			row := func(i int) *graph.Node { return graph.SliceAxis(xs[0], 0, graph.AxisRange(i, i+1)) }
			return graph.Concatenate([]*graph.Node{row(2), row(0), row(4), row(5)}, 0)
		}},
	"logSumExp":                     logSumExpCase(5, 1, 5, 0),
	"logSumExp in chunks":           logSumExpCase(5, 1, 2, 0),
	"logSumExp of blocks":           logSumExpCase(6, 2, 3, 0),
	"logSumExp of blocks in chunks": logSumExpCase(6, 2, 2, 0),
	"capped logSumExp":              logSumExpCase(5, 1, 5, 2),
	"capped logSumExp in chunks":    logSumExpCase(5, 1, 2, 2),
	"recomputed": {[][]int{{5, 4}, {4, 4}, {4}}, func(xs []*graph.Node) *graph.Node {
		return recompute(xs[0], xs[1:],
			block)
	},
		func(xs []*graph.Node) *graph.Node { return block(xs[0], xs[1:]) }},
	"recomputed twice": {[][]int{{5, 4}, {4, 4}, {4}},
		func(xs []*graph.Node) *graph.Node { return recompute(recompute(xs[0], xs[1:], block), xs[1:], block) },
		func(xs []*graph.Node) *graph.Node { return block(block(xs[0], xs[1:]), xs[1:]) }},
}

func logSumExpCase(slots, blocks, chunk int, cap softCap) gradientCase {
	return gradientCase{[][]int{{slots, 3}, {7, 3}}, func(xs []*graph.Node) *graph.Node {
		return head{table: xs[1], blocks: blocks, chunk: chunk, cap: cap}.logSumExp(xs[0])
	}, func(xs []*graph.Node) *graph.Node {
		z := plainCap(graph.MatMul(xs[0], graph.Transpose(xs[1], 0, 1)), cap)
		return graph.Log(graph.ReduceSum(graph.Exp(z), -1))
	}}
}

func plainCap(z *graph.Node, cap softCap) *graph.Node {
	if cap == 0 {
		return z
	}
	return graph.MulScalar(graph.Tanh(graph.DivScalar(z, float64(cap))), float64(cap))
}

// causalMask hides later keys, and the first key from the last query.
func causalMask(n int) [][]float32 {
	mask := make([][]float32, n)
	for i := range mask {
		mask[i] = make([]float32, n)
		for j := range mask[i] {
			if j > i || i == n-1 && j == 0 {
				mask[i][j] = maskedScore
			}
		}
	}
	return mask
}

// mixCase is attention of 4 heads to 2 heads of keys over 6 tokens, with capped scores and blocks of queries that end
// there, whose weights are computed again or kept, and its formula.
func mixCase(again bool, cap softCap, ends ...int) gradientCase {
	scores := func(q, k *graph.Node) *graph.Node { return graph.Einsum("rghqd,rgkd->rghqk", q, k) }
	mask := func(q *graph.Node) *graph.Node { return graph.Const(q.Graph(), [][][][]float32{{causalMask(6)}}) }
	return gradientCase{[][]int{{2, 4, 6, 5}, {2, 2, 6, 5}, {2, 2, 6, 5}},
		func(xs []*graph.Node) *graph.Node { return mix(xs[0], xs[1], xs[2], mask(xs[0]), ends, cap, again) },
		func(xs []*graph.Node) *graph.Node {
			z := plainCap(graph.Reshape(scores(graph.Reshape(xs[0], 2, 2, 2, 6, 5), xs[1]), 2, 4, 6, 6), cap)
			e := graph.Exp(graph.Add(z, mask(xs[0])))
			p := graph.Div(e, graph.ReduceAndKeep(e, graph.ReduceSum, -1))
			return graph.Reshape(graph.Einsum("rghqk,rgkd->rghqd", graph.Reshape(p, 2, 2, 2, 6, 6), xs[2]), 2, 4, 6, 5)
		}}
}

func block(x *graph.Node, w []*graph.Node) *graph.Node {
	return graph.Add(x, graph.Tanh(linear(rmsNorm(x, w[1], 1e-3), w[0])))
}

func testRotation(x *graph.Node) rotation {
	c := &Config{HeadDim: 6, RopeTheta: 100}
	return newRotation(graph.Const(x.Graph(), [][]int32{{0, 1, 2, 3}, {5, 0, 1, 9}}), c.rope(), 6)
}

func randomBuffers(t *testing.T, e *backend.Engine, r *rand.Rand, dims [][]int) (out []compute.Buffer) {
	t.Helper()
	for _, d := range dims {
		x := make([]float32, shapes.Make(dtypes.Float32, d...).Size())
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		b := expect.Must(e.Float32(x, d...))(t)
		out = append(out, b)
	}
	return out
}

func compareGradients(t *testing.T, e *backend.Engine, k gradientCase) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	program, err := e.Compile("gradients", func(g *graph.Graph) []*graph.Node {
		var xs, out []*graph.Node
		for i, s := range k.shapes {
			xs = append(xs, graph.Parameter(g, string(rune('a'+i)), shapes.Make(dtypes.Float32, s...)))
		}
		for _, f := range []func([]*graph.Node) *graph.Node{k.own, k.plain} {
			y := f(xs)
			loss := graph.ReduceAllSum(graph.Mul(y, graph.Sin(graph.Add(y, graph.IotaFull(g, y.Shape())))))
			out = append(append(out, y), graph.Gradient(loss, xs...)...)
		}
		return out
	})
	expect.OK(t, err)
	defer program.Close()
	in := randomBuffers(t, e, r, k.shapes)
	defer backend.FinalizeAll(in...)
	out := runOnce(t, program, in)
	n, limit := len(out)/2, 3e-6
	if e.Name == "xla" { // its exponential function is rounded less well, and plain formulas need a large one
		limit = 3e-5
	}
	for i := range n {
		near(t, []string{"value", "first", "second", "third"}[i], relative(out[i], out[n+i]), limit)
		if i > 0 && slices.Max(out[n+i]) == 0 && slices.Min(out[n+i]) == 0 {
			t.Errorf("gradient %d is zero, so that the test compares nothing", i)
		}
	}
}

// On CPUs, XLA multiplies bfloat16 quickly only where it sums over rows: a weight's gradient transposes its left side.
func TestWeightGradientOfBFloat16(t *testing.T) {
	e, transposes := backendtest.XLA(t), false
	program, err := e.Compile("weight gradient", func(g *graph.Graph) []*graph.Node {
		half := func(name string, dims ...int) *graph.Node {
			return graph.Parameter(g, name, shapes.Make(dtypes.BFloat16, dims...))
		}
		weight := graph.Parameter(g, "weight", shapes.Make(dtypes.Float32, 2, 1))
		out := weightGradient(half("v", 3, 2), half("x", 3, 1), weight)
		for _, n := range g.Nodes() {
			transposes = transposes || n.Type() == graph.NodeTypeOptimizationBarrier
		}
		return []*graph.Node{out, weight}
	})
	expect.OK(t, err)
	defer program.Close()
	var in []compute.Buffer
	names, shapes := program.Inputs()
	for i, shape := range shapes {
		b := expect.Must(e.Floats(shape.DType, map[string][]float32{"v": {1, 2, 3, 4, 5, 6}, "x": {1, 10, 100},
			"weight": {0, 0}}[names[i]], shape.Dimensions...))(t)
		defer backend.FinalizeAll(b)
		in = append(in, b)
	}
	near(t, "gradient", worst(runOnce(t, program, in)[0], []float32{1 + 30 + 500, 2 + 40 + 600}), 2) // 8 bits
	if !transposes && !strings.Contains(e.Detail, "cuda") {
		t.Error("the product sums over the columns of its left side: four times slower")
	}
}
