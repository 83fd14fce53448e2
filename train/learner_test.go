package train

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/adamw"
	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/losses"
	"github.com/posttrain/posttrain/model"
)

// modelTypes are all that a decoder can be.
var modelTypes = []string{"qwen2", "qwen3", "llama", "mistral"}

func learner(t *testing.T, e *backend.Engine, m *model.Model) *Learner {
	t.Helper()
	l := expect.Must(NewLearner(e, m, model.GraphOptions{}))(t)
	t.Cleanup(l.Close)
	return l
}

func mappo() *Preference { return &Preference{Options: losses.Defaults(losses.DPO)} }

// pairsOf are groups of two answers for MaPPO, with reference log-probs away from the policy's.
func pairsOf(groups []batch.Group) (all []Example) {
	for i, g := range groups {
		all = append(all, Example{Group: g, Gap: 0.1 + 0.1*float64(i%9), Scored: true,
			Reference: [2]float32{-4 * float32(len(g.Answers[0])), -4 * float32(len(g.Answers[1]))}})
	}
	return all
}

// examplesOf are groups without anything beside them.
func examplesOf(groups []batch.Group) (all []Example) {
	for _, g := range groups {
		all = append(all, Example{Group: g})
	}
	return all
}

// gradients accumulates the loss of groups in microbatches, and reads what an update by them does to the weights when
// moments and clipping are taken out: plain gradients, up to sign.
func gradients(t *testing.T, l *Learner, method Method, all []Example, micro int, share bool) [][]float32 {
	t.Helper()
	for part := range slices.Chunk(all, micro) {
		p := batch.Pack(Groups(part), batch.Layout{Share: share, Pad: micro})
		if _, _, err := l.Accumulate(p, method, method.Inputs(part, p), 1/method.Weight(all)); err != nil {
			t.Fatal(err)
		}
	}
	return takeGradients(t, l)
}

// takeGradients gives what is accumulated, and clears it.
func takeGradients(t *testing.T, l *Learner) (grads [][]float32) {
	t.Helper()
	flat := expect.Must(l.TakeGradient())(t)
	for _, p := range l.model.Trained() {
		grads, flat = append(grads, flat[:p.Size()]), flat[p.Size():]
	}
	return grads
}

// TestFlatWeights: what was written is read, in the model's order, and every batch sees it.
func TestFlatWeights(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		l, other := learner(t, e, testkit.Model(t, "llama")), model.Init(testkit.Config(t, "llama"), 8)
		version, want := l.Version(), []float32{}
		for _, p := range other.Trained() {
			want = append(want, p.Data...)
		}
		expect.OK(t, l.WriteFlat(want))
		got, err := l.Flat()
		if err != nil || !slices.Equal(got, want) || l.Size() != len(want) || l.Version() == version {
			t.Errorf("%d weights, size %d, version %d, %v: want the %d of the other model, and another version",
				len(got), l.Size(), l.Version(), err, len(want))
		}
		p := batch.Pack(testkit.Groups(3, 2, 2), batch.Layout{Share: true})
		a, b := sumsOf(t, l, p), sumsOf(t, learner(t, e, other), p)
		if !slices.Equal(a, b) {
			t.Errorf("log-probs %v, want those of the other model, %v", a, b)
		}
		if err := l.WriteFlat(want[1:]); err == nil || !strings.Contains(err.Error(), "want ") {
			t.Errorf("too few weights: %v", err)
		}
	})
}

func sumsOf(t *testing.T, l *Learner, p *batch.Packed) []float32 {
	t.Helper()
	return expect.Must(l.Sums(p))(t)
}

// farthest is the largest difference of two gradients, relative to each tensor's maximum.
func farthest(a, b [][]float32) (worst float64, where int) {
	for i := range a {
		d, top := 0.0, 0.0
		for k := range a[i] {
			d = max(d, math.Abs(float64(a[i][k]-b[i][k])))
			top = max(top, math.Abs(float64(a[i][k])))
		}
		if top > 1e-12 && d/top > worst {
			worst, where = d/top, i
		}
	}
	return worst, where
}

func TestAccumulatedEqualsWhole(t *testing.T) {
	groups := testkit.Groups(3, 8, 2)
	m := testkit.Model(t, "llama")
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		for name, method := range map[string]Method{"preference": mappo(), "sft": SFT{}} {
			l := learner(t, e, m)
			data := pairsOf(groups)
			if name == "sft" {
				data = examplesOf(single(groups))
			}
			whole := gradients(t, l, method, data, 8, false)
			for _, micro := range []int{1, 3} {
				if d, i := farthest(whole, gradients(t, l, method, data, micro, false)); d > 1e-6*10 {
					t.Errorf("%s: batch 8 in microbatches of %d: gradient of %s is off by %.1e of its maximum", name,
						micro, m.Params[i].Name, d)
				}
			}
		}
	})
}

// TestLargeBatchesEqualSmallOnes: what the backward pass computes again in large batches, it keeps in small ones.
func TestLargeBatchesEqualSmallOnes(t *testing.T) {
	data, c := pairsOf(testkit.Groups(3, 256, 2)), testkit.Config(t, "llama")
	c.IntermediateSize = 128
	whole := model.Init(c, 1)
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		for name, m := range map[string]*model.Model{"weights": whole, "adapter": withLoRA(whole)} {
			l := learner(t, e, m)
			large, small := gradients(t, l, mappo(), data, 256, false), gradients(t, l, mappo(), data, 32, false)
			if d, i := farthest(large, small); d > 1e-5 {
				t.Errorf("%s: the gradient of %s is off by %.1e of its maximum", name, m.Trained()[i].Name, d)
			}
		}
	})
}

// TestBlocksChangeRoundingAlone: rows and slots in blocks, as on several devices, give the sums and the gradient of one
// block.
func TestBlocksChangeRoundingAlone(t *testing.T) {
	groups := testkit.Groups(3, 7, 2)
	m := testkit.Model(t, "qwen3")
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		l := learner(t, e, m)
		for name, all := range map[string][]Example{"preference": pairsOf(groups), "sft": examplesOf(single(groups))} {
			var method Method = mappo()
			if name == "sft" {
				if method = (SFT{}); e.Name != "go" {
					continue // programs are compiled for long
				}
			}
			sums, grads := map[int][]float32{}, map[int][][]float32{}
			for _, blocks := range []int{1, 4} {
				p := batch.Pack(Groups(all), batch.Layout{Share: true, Pad: 8, Blocks: blocks})
				if p.Blocks != blocks {
					t.Fatalf("%d blocks, want %d", p.Blocks, blocks)
				}
				_, out, err := l.Accumulate(p, method, method.Inputs(all, p), 1/method.Weight(all))
				expect.OK(t, err)
				sums[blocks], grads[blocks] = out[0], takeGradients(t, l)
			}
			for i, want := range sums[1] {
				if d := math.Abs(float64(sums[4][i] - want)); d > 1e-4*(1+math.Abs(float64(want))) {
					t.Errorf("%s: answer %d: %v in blocks, want %v", name, i, sums[4][i], want)
				}
			}
			if d, i := farthest(grads[1], grads[4]); d > 1e-4 {
				t.Errorf("%s: gradient of %s is off by %.1e of its maximum", name, m.Params[i].Name, d)
			}
		}
	})
}

// single keeps the first answer of every group.
func single(groups []batch.Group) []batch.Group {
	out := make([]batch.Group, len(groups))
	for i, g := range groups {
		out[i] = batch.Group{Prompt: g.Prompt, Answers: g.Answers[:1]}
	}
	return out
}

// TestAccumulatedStepEqualsWholeStep: weights after one update, 1×8 against 8×1, within 1e-6.
func TestAccumulatedStepEqualsWholeStep(t *testing.T) {
	groups := testkit.Groups(3, 8, 2)
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		weights := map[int][][]float32{}
		for _, micro := range []int{8, 1} {
			l := learner(t, e, testkit.Model(t, "llama"))
			method, all := mappo(), pairsOf(groups)
			for at := 0; at < len(groups); at += micro {
				p := batch.Pack(groups[at:at+micro], batch.Layout{Share: true, Pad: micro})
				if _, _, err := l.Accumulate(p, method, method.Inputs(all[at:at+micro], p), 1.0/8); err != nil {
					t.Fatal(err)
				}
			}
			// Epsilon keeps rounding noise in a gradient of almost 0 from deciding the sign of a step.
			expect.Must(l.Update(AdamW{Options: adamw.Options{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-3,
				WeightDecay: 0.01, MaxNorm: 1}}, 1e-3))(t)
			got, _, err := l.Read()
			expect.OK(t, err)
			weights[micro] = got.Weights
		}
		for i := range weights[8] {
			for k := range weights[8][i] {
				if d := math.Abs(float64(weights[8][i][k] - weights[1][i][k])); d > 1e-6 {
					t.Fatalf("weight %d of tensor %d differs by %.1e", k, i, d)
				}
			}
		}
	})
}

func TestSharedPrefixEqualsTwoRows(t *testing.T) {
	groups := testkit.Groups(5, 6, 2)
	for _, kind := range modelTypes {
		t.Run(kind, func(t *testing.T) {
			m := testkit.Model(t, kind)
			backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
				l := learner(t, e, m)
				apart, shared := pairSums(t, l, groups, false), pairSums(t, l, groups, true)
				for i := range apart {
					for k := range 2 {
						size := math.Abs(float64(apart[i][k]))
						if d := math.Abs(float64(apart[i][k] - shared[i][k])); d > 1e-5*(1+size) {
							t.Errorf("pair %d, answer %d: log-prob %v apart, %v shared", i, k, apart[i][k],
								shared[i][k])
						}
					}
				}
				method, pairs := mappo(), pairsOf(groups)
				a, b := gradients(t, l, method, pairs, 6, false), gradients(t, l, method, pairs, 6, true)
				if d, i := farthest(a, b); d > 2e-5 {
					t.Errorf("gradient of %s is off by %.1e of its maximum", m.Params[i].Name, d)
				}
			})
		})
	}
}

func pairSums(t *testing.T, l *Learner, groups []batch.Group, share bool) [][2]float32 {
	t.Helper()
	return expect.Must(PairSums(l, groups, l.Layout(groups, share, 4), nil))(t)
}

// TestRepeatedTokensDoNotRace: every row holds the same few tokens, so that look-up gradients meet in the same rows of
// the table; 20 runs must agree bit for bit, with each other and to rounding across engines.
func TestRepeatedTokensDoNotRace(t *testing.T) {
	groups := testkit.Groups(6, 16, 2)
	for i := range groups {
		groups[i].Prompt = []int32{5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5}
	}
	m := testkit.Model(t, "llama")
	byEngine := map[string][][]float32{}
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		l := learner(t, e, m)
		method, pairs := mappo(), pairsOf(groups)
		first := gradients(t, l, method, pairs, 16, false)
		for range 19 {
			if again := gradients(t, l, method, pairs, 16, false); fmt.Sprint(again) != fmt.Sprint(first) {
				t.Fatal("the gradient of the same batch changed from run to run")
			}
		}
		byEngine[e.Name] = first
	})
	if a, b := byEngine["go"], byEngine["onnx"]; b != nil {
		if d, i := farthest(a, b); d > 1e-4 {
			t.Errorf("gradient of %s differs by %.1e between go and onnx", m.Params[i].Name, d)
		}
	}
}

// TestRowsLookedUpOnTheHostEqualThoseInTheGraph holds the two ways to feed an engine against each other.
func TestRowsLookedUpOnTheHostEqualThoseInTheGraph(t *testing.T) {
	groups := testkit.Groups(8, 4, 2)
	for _, kind := range modelTypes {
		m := testkit.Model(t, kind)
		var updated [2][][]float32
		for i, host := range []bool{true, false} {
			e := backendtest.Go(t)
			e.Wants.HostRows, e.Wants.SharedMemory = host, host
			l := learner(t, e, m)
			method := mappo()
			p := batch.Pack(groups, batch.Layout{Share: true, Pad: 4})
			if _, _, err := l.Accumulate(p, method, method.Inputs(pairsOf(groups), p), 0.25); err != nil {
				t.Fatal(err)
			}
			expect.Must(l.Update(AdamW{Options: adamw.Options{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-3, MaxNorm: 1}},
				1e-2))(t)
			got, _, err := l.Read()
			expect.OK(t, err)
			updated[i] = got.Weights
		}
		if d, i := farthest(updated[0], updated[1]); d > 1e-5 {
			t.Errorf("%s: %s differs by %.1e of its maximum", kind, m.Params[i].Name, d)
		}
	}
}
