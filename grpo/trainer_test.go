package grpo

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/adamw"
	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/train"
)

// sgd makes an update from which the gradient can be read: with this rule, at step 1, weights move by
// -rate·g/(|g|+ε), and a huge ε makes that proportional to g.
var sgd = train.AdamW{Options: adamw.Options{Beta1: 0, Beta2: 0, Epsilon: 1e6}}

// trainer puts a model into an engine.
func trainer(t testing.TB, e *backend.Engine, m *model.Model, o Options) *Trainer {
	t.Helper()
	l := expect.Must(train.NewLearner(e, m, model.GraphOptions{}))(t)
	t.Cleanup(l.Close)
	return &Trainer{Learner: l, Options: o, Tokens: 64}
}

// rollouts are random groups with advantages; the old policy's and the reference's log-probs are near the model's own
// where options ask for them.
func rollouts(t testing.TB, tr *Trainer, seed uint64, n, answers int) []Group {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 9))
	var groups []Group
	for _, g := range testkit.Groups(seed, n, answers) {
		rewards := make([]float64, answers)
		for i := range rewards {
			rewards[i] = float64(r.IntN(5)) / 4
		}
		a, _ := Advantages(rewards, tr.Options.Std)
		groups = append(groups, Group{Group: g, Advantages: a})
	}
	logps := expect.Must(tr.Measure(groups, nil))(t)
	for i := range groups {
		groups[i].Sampled = logps[i]
		if tr.Options.NeedsOld() {
			groups[i].Old = perturb(r, logps[i], 0.3)
		}
		if tr.Options.NeedsReference() {
			groups[i].Reference = perturb(r, logps[i], 0.5)
		}
	}
	return groups
}

func perturb(r *rand.Rand, logps [][]float32, by float64) [][]float32 {
	out := make([][]float32, len(logps))
	for a, row := range logps {
		for _, x := range row {
			out[a] = append(out[a], x+float32(by*r.NormFloat64()))
		}
	}
	return out
}

// gradient is the gradient of the trainer's objective on the groups, read from an update.
func gradient(t *testing.T, tr *Trainer, groups []Group) (grads [][]float64, norm float64, metrics map[string]float64) {
	t.Helper()
	before, updates, err := tr.Learner.Read()
	expect.OK(t, err)
	m := train.NewMetrics()
	norm = expect.Must(tr.Update(groups, sgd, 1e6, m))(t)
	after, _, err := tr.Learner.Read()
	expect.OK(t, err)
	for i := range before.Weights {
		g := make([]float64, len(before.Weights[i]))
		for k := range g {
			g[k] = float64(after.First[i][k]) // beta1 0: the gradient itself
		}
		grads = append(grads, g)
	}
	expect.OK(t, tr.Learner.Write(before, updates))
	return grads, norm, m.Means("")
}

// farthest is the largest difference of two gradients, relative to each tensor's maximum.
func farthest(a, b [][]float64) (worst float64) {
	for i := range a {
		d, top := 0.0, 0.0
		for k := range a[i] {
			d, top = max(d, math.Abs(a[i][k]-b[i][k])), max(top, math.Abs(a[i][k]))
		}
		if d > 1e-9 {
			worst = max(worst, d/top)
		}
	}
	return worst
}

// every option that changes the objective, a few combinations.
func objectives() map[string]Options {
	base := DefaultOptions()
	base.Prompts, base.GroupSize, base.Updates, base.KLCoef = 4, 4, 4, 0.1
	all := map[string]Options{}
	add := func(name string, change func(o *Options)) {
		o := base
		change(&o)
		all[name] = o
	}
	add("one update", func(o *Options) { o.Updates = 1 })
	add("one update without KL", func(o *Options) { o.Updates, o.KL, o.KLCoef = 1, None, 0 })
	add("several updates", func(o *Options) {})
	add("sequence", func(o *Options) { o.RatioLevel, o.Aggregation = Sequence, SeqMeanMean })
	add("importance", func(o *Options) { o.Updates, o.ImportanceCap = 1, 1.1 })
	add("importance of sequences", func(o *Options) {
		o.RatioLevel, o.Aggregation, o.ImportanceCap = Sequence, SeqMeanMean, 1.1
	})
	add("whole answers", func(o *Options) { o.RatioLevel, o.Aggregation = Whole, SeqMeanMean })
	add("whole answers, one update", func(o *Options) { o.RatioLevel, o.Updates = Whole, 1 })
	add("cispo", func(o *Options) { o.Surrogate, o.ClipLow = CISPO, 1 })
	add("cispo, one update", func(o *Options) { o.Surrogate, o.Updates = CISPO, 1 })
	add("k2", func(o *Options) { o.KL, o.Aggregation = K2, SeqMeanSum })
	add("k1", func(o *Options) { o.KL, o.Aggregation, o.NormLength = K1, SeqMeanConstant, 7 })
	return all
}

// objectivesOn are all objectives, or on an engine without the time for them the one that has the most inputs.
func objectivesOn(t *testing.T, e *backend.Engine) map[string]Options {
	all := objectives()
	if !backendtest.AllVariants(t, e) {
		const name = "several updates"
		return map[string]Options{name: all[name]}
	}
	return all
}

// TestSharedPromptsEqualSeparateRows: log-probs and gradients, whatever the objective.
func TestSharedPromptsEqualSeparateRows(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		for name, o := range objectivesOn(t, e) {
			tr := trainer(t, e, testkit.Model(t, "qwen3"), o)
			groups := rollouts(t, tr, 3, 4, 5)
			together, norm, values := gradient(t, tr, groups)
			shared := expect.Must(tr.Measure(groups, nil))(t)
			tr.Apart = true
			apart, apartNorm, apartValues := gradient(t, tr, groups)
			separate := expect.Must(tr.Measure(groups, nil))(t)
			if d := farthest(apart, together); d > 3e-5 || math.Abs(norm-apartNorm) > 1e-5*norm {
				t.Errorf("%s: gradients are apart by %.1e of their maximum, norms %v and %v", name, d, norm, apartNorm)
			}
			for key, v := range values {
				if math.Abs(v-apartValues[key]) > 1e-4*(math.Abs(v)+0.05) {
					t.Errorf("%s: %s is %v together, %v apart", name, key, v, apartValues[key])
				}
			}
			sameLogps(t, name, shared, separate, 2e-5)
		}
	})
}

func sameLogps(t *testing.T, name string, a, b [][][]float32, most float64) {
	t.Helper()
	for g := range a {
		for i := range a[g] {
			if len(a[g][i]) != len(b[g][i]) {
				t.Fatalf("%s: answer %d of group %d has %d log-probs and %d", name, i, g, len(a[g][i]), len(b[g][i]))
			}
			for k := range a[g][i] {
				if d := math.Abs(float64(a[g][i][k] - b[g][i][k])); d > most {
					t.Errorf("%s: token %d of answer %d of group %d: %v and %v", name, k, i, g, a[g][i][k], b[g][i][k])
				}
			}
		}
	}
}

// TestPartsAddUp: a minibatch in many parts has the gradient and the metrics of one that goes through at once.
func TestPartsAddUp(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		for name, o := range objectivesOn(t, e) {
			tr := trainer(t, e, testkit.Model(t, "llama"), o)
			groups := rollouts(t, tr, 4, 8, 4)
			tr.Tokens = 4096
			whole, norm, values := gradient(t, tr, groups)
			tr.Tokens = 16 // a row at a time
			parts, partsNorm, partsValues := gradient(t, tr, groups)
			if d := farthest(whole, parts); d > 2e-5 || math.Abs(norm-partsNorm) > 1e-5*norm {
				t.Errorf("%s: gradients are apart by %.1e of their maximum, norms %v and %v", name, d, norm, partsNorm)
			}
			for key, v := range values {
				if math.Abs(v-partsValues[key]) > 1e-4*(math.Abs(v)+0.05) {
					t.Errorf("%s: %s is %v whole, %v in parts", name, key, v, partsValues[key])
				}
			}
		}
	})
}

// TestBlocksChangeRoundingAlone: rows and slots in blocks, as on several devices, give the log-probs, the gradient and
// the metrics of one block.
func TestBlocksChangeRoundingAlone(t *testing.T) {
	e := backendtest.Go(t) // others: package train
	for name, o := range objectives() {
		tr := trainer(t, e, testkit.Model(t, "qwen3"), o)
		groups := rollouts(t, tr, 5, 5, 4)
		want, norm, values := gradient(t, tr, groups)
		wantLogps := expect.Must(tr.Measure(groups, nil))(t)
		tr.Rows.Blocks = 4
		got, blocksNorm, blocksValues := gradient(t, tr, groups)
		logps := expect.Must(tr.Measure(groups, nil))(t)
		if d := farthest(want, got); d > 1e-4 || math.Abs(norm-blocksNorm) > 1e-4*norm {
			t.Errorf("%s: gradients are apart by %.1e of their maximum, norms %v and %v", name, d, norm, blocksNorm)
		}
		for key, v := range values {
			if math.Abs(v-blocksValues[key]) > 1e-4*(math.Abs(v)+0.05) {
				t.Errorf("%s: %s is %v, in blocks %v", name, key, v, blocksValues[key])
			}
		}
		sameLogps(t, name, wantLogps, logps, 1e-4)
	}
}

// hostLoss is the objective in float64 on log-probs that the trainer measures: no graph of the objective is in it.
func hostLoss(t *testing.T, tr *Trainer, groups []Group) float64 {
	t.Helper()
	logps := expect.Must(tr.Measure(groups, nil))(t)
	b := newMinibatch(tr.Options, groups)
	for i := range groups {
		for a := range groups[i].Answers {
			b.numbers.Logps[b.first[i]+a] = wide(logps[i])[a]
		}
	}
	return b.Host(b.numbers).Loss
}

// TestUpdateFollowsFiniteDifferences: the gradient along random directions against differences of the loss that the
// host computes from measured log-probs. With one update per rollout batch the old policy is the policy of the groups'
// own log-probs.
func TestUpdateFollowsFiniteDifferences(t *testing.T) {
	for name, o := range objectives() {
		if o.Surrogate == CISPO { // its weights are constants, which differences move
			continue
		}
		tr := trainer(t, backendtest.Go(t), testkit.Model(t, "qwen2"), o)
		groups := rollouts(t, tr, 5, 4, 4)
		grads, norm, _ := gradient(t, tr, groups)
		if !o.NeedsOld() { // for the differences, the ratio must be able to move
			for i := range groups {
				groups[i].Old = groups[i].Sampled
			}
		}
		start, updates, err := tr.Learner.Read()
		expect.OK(t, err)
		r := rand.New(rand.NewPCG(1, 2))
		for range 3 {
			const h = 1e-3
			direction, slope := directionFor(r, grads)
			at := func(step float64) float64 {
				moved := train.Tensors{First: start.First, Second: start.Second}
				for i, w := range start.Weights {
					row := make([]float32, len(w))
					for k := range w {
						row[k] = w[k] + float32(step*direction[i][k])
					}
					moved.Weights = append(moved.Weights, row)
				}
				expect.OK(t, tr.Learner.Write(moved, updates))
				return hostLoss(t, tr, groups)
			}
			if got := (at(h) - at(-h)) / (2 * h); math.Abs(got-slope) > 0.02*norm {
				t.Errorf("%s: the loss changes by %v along a direction, the gradient says %v (norm %v)", name, got,
					slope, norm)
			}
		}
	}
}

// directionFor is a unit direction half along the gradient, half random, and the gradient's slope along it.
func directionFor(r *rand.Rand, grads [][]float64) (direction [][]float64, slope float64) {
	norm := func(x [][]float64) float64 {
		s := 0.0
		for i := range x {
			for _, v := range x[i] {
				s += v * v
			}
		}
		return math.Sqrt(s)
	}
	noise := make([][]float64, len(grads))
	for i := range grads {
		noise[i] = make([]float64, len(grads[i]))
		for k := range noise[i] {
			noise[i][k] = r.NormFloat64()
		}
	}
	g, n := norm(grads), norm(noise)
	for i := range grads {
		for k := range grads[i] {
			noise[i][k] = noise[i][k]/n + grads[i][k]/g
		}
	}
	n = norm(noise)
	for i := range grads {
		for k := range grads[i] {
			noise[i][k] /= n
			slope += noise[i][k] * grads[i][k]
		}
	}
	return noise, slope
}

// TestFirstMinibatch: with the old policy and the reference measured just before, the ratio is 1, nothing is clipped,
// and the KL is 0.
func TestFirstMinibatch(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		for _, updates := range []int{1, 2} {
			o := DefaultOptions()
			o.Prompts, o.GroupSize, o.Updates = 4, 4, updates
			tr := trainer(t, e, testkit.Model(t, "llama"), o)
			groups := rollouts(t, tr, 6, 4, 4)
			logps := expect.Must(tr.Measure(groups, tr.Learner.Weights()))(t)
			for i := range groups {
				groups[i].Reference = logps[i]
				if updates > 1 {
					groups[i].Old = logps[i]
				}
			}
			_, _, v := gradient(t, tr, groups[:4/updates])
			for name, want := range map[string]float64{MetricKL: 0, MetricRatioMean: 1, MetricRatioMin: 1,
				MetricRatioMax: 1,
				MetricClipLow:  0, MetricClipHigh: 0, MetricClipRegion: 0, MetricDifferenceMean: 0,
				MetricDifferenceMax: 0} {
				if got, ok := v[name]; !ok || math.Abs(got-want) > 1e-5 {
					t.Errorf("%d updates: %s is %v: want %v", updates, name, got, want)
				}
			}
			if v[MetricKL] > 1e-9 || !(v[MetricEntropy] > 0) {
				t.Errorf("%d updates: KL %v, entropy %v", updates, v[MetricKL], v[MetricEntropy])
			}
		}
	})
}

// TestUpdatesMoveTheRatio: a second update on the same rollouts sees another policy than the old one, and the loss of
// the first falls.
func TestUpdatesMoveTheRatio(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		o := DefaultOptions()
		o.Prompts, o.GroupSize, o.Updates = 4, 4, 2
		tr := trainer(t, e, testkit.Model(t, "llama"), o)
		groups := rollouts(t, tr, 7, 4, 4)
		for i := range groups {
			groups[i].Old, groups[i].Reference = groups[i].Sampled, groups[i].Sampled
		}
		rule := train.AdamW{Options: adamw.Options{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}}
		var losses []float64
		for range 8 {
			m := train.NewMetrics()
			expect.Must(tr.Update(groups, rule, 5e-3, m))(t)
			v := m.Means("")
			losses = append(losses, v[MetricLoss])
			if first := len(losses) == 1; first != (v[MetricRatioMax]-v[MetricRatioMin] < 1e-4) {
				t.Errorf("update %d: ratios from %v to %v", len(losses), v[MetricRatioMin], v[MetricRatioMax])
			}
			if len(losses) == 8 && (v[MetricClipRegion] == 0 || v[MetricKL] <= 0) {
				t.Errorf("after eight updates: clipped %v, KL %v", v[MetricClipRegion], v[MetricKL])
			}
		}
		if losses[7] >= losses[0]-1e-3 {
			t.Errorf("losses %v do not fall", losses)
		}
	})
}

// TestEqualRewardsGiveNoGradient: none without KL, KL's alone with it; and they count in the mean over tokens.
func TestEqualRewardsGiveNoGradient(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		o := DefaultOptions()
		o.Prompts, o.GroupSize, o.Updates, o.KL = 4, 4, 1, None
		tr := trainer(t, e, testkit.Model(t, "llama"), o)
		groups := rollouts(t, tr, 8, 4, 4)
		clear(groups[0].Advantages)
		clear(groups[2].Advantages)
		all, _, v := gradient(t, tr, groups)
		if len(v) == 0 || v[MetricRatioMean] != 1 {
			t.Errorf("metrics %v", v)
		}
		half, _, _ := gradient(t, tr, []Group{groups[1], groups[3]})
		share := float64(groups[1].AnswerTokens()+groups[3].AnswerTokens()) /
			float64(groups[0].AnswerTokens()+groups[1].AnswerTokens()+groups[2].AnswerTokens()+groups[3].AnswerTokens())
		for i := range half {
			for k := range half[i] {
				half[i][k] *= share
			}
		}
		if d := farthest(all, half); d > 2e-5 {
			t.Errorf("groups of equal rewards change the others' gradient by %.1e of its maximum", d)
		}
		if _, norm, _ := gradient(t, tr, []Group{groups[0]}); norm != 0 {
			t.Errorf("equal rewards without KL have a gradient of norm %v", norm)
		}
		tr.Options.KL = K3
		groups[0].Reference = perturb(rand.New(rand.NewPCG(1, 1)), groups[0].Sampled, 0.5)
		if _, norm, _ := gradient(t, tr, []Group{groups[0]}); norm == 0 {
			t.Error("KL has no gradient")
		}
	})
}

// TestMaskedAnswersDoNotTrain: they are as if they had not been sampled, empty answers too.
func TestMaskedAnswersDoNotTrain(t *testing.T) {
	for name, o := range objectives() {
		tr := trainer(t, backendtest.Go(t), testkit.Model(t, "llama"), o)
		groups := rollouts(t, tr, 9, 4, 4)
		var without []Group
		for i := range groups {
			g := groups[i]
			g.Masked = []bool{false, i%2 == 0, false, false}
			groups[i] = g
			if g.Masked[1] {
				g = Group{Group: batch.Group{Prompt: g.Prompt, Answers: dropSecond(g.Answers)},
					Advantages: dropSecond(g.Advantages),
					Sampled:    dropSecond(g.Sampled), Old: dropSecond(g.Old), Reference: dropSecond(g.Reference)}
			}
			g.Masked = nil
			without = append(without, g)
		}
		a, normA, va := gradient(t, tr, groups)
		b, normB, vb := gradient(t, tr, without)
		if d := farthest(a, b); d > 1e-5 || math.Abs(normA-normB) > 1e-5*normA ||
			math.Abs(va[MetricLoss]-vb[MetricLoss]) > 1e-6 {
			t.Errorf("%s: gradients with masked answers and without are apart by %.1e, losses %v and %v", name, d,
				va[MetricLoss], vb[MetricLoss])
		}
		for metric, want := range vb {
			if got, has := va[metric]; !has || math.Abs(got-want) > 1e-4*(1+math.Abs(want)) {
				t.Errorf("%s: %s is %v with masked answers, %v without", name, metric, got, want)
			}
		}
	}
}

// dropSecond returns x without the second element.
func dropSecond[T any](x []T) []T {
	if x == nil {
		return nil
	}
	return append(append([]T{}, x[0]), x[2:]...)
}

// TestNothingTrains: a minibatch of masked answers changes nothing and reports nothing.
func TestNothingTrains(t *testing.T) {
	o := DefaultOptions()
	o.Prompts, o.GroupSize, o.Updates, o.KL, o.KLCoef = 2, 2, 1, None, 0
	tr := trainer(t, backendtest.Go(t), testkit.Model(t, "llama"), o)
	groups := rollouts(t, tr, 9, 1, 2)
	groups[0].Masked = []bool{true, true}
	before, _, err := tr.Learner.Read()
	expect.OK(t, err)
	m := train.NewMetrics()
	norm, err := tr.Update(groups, train.AdamW{Options: adamw.Options{WeightDecay: 0.1, Beta1: 0.9, Beta2: 0.999,
		Epsilon: 1e-8}}, 1, m)
	if err != nil || norm != 0 || len(m.Means("")) != 0 {
		t.Errorf("norm %v, metrics %v, error %v: want 0, none, none", norm, m.Means(""), err)
	}
	after, _, err := tr.Learner.Read()
	expect.OK(t, err)
	for i := range before.Weights {
		for k := range before.Weights[i] {
			if before.Weights[i][k] != after.Weights[i][k] {
				t.Fatal("weights changed")
			}
		}
	}
}

// TestUpdatesRepeatBitForBit: the same calls give the same bits.
func TestUpdatesRepeatBitForBit(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		tr := trainer(t, e, testkit.Model(t, "llama"), objectives()["several updates"])
		groups := rollouts(t, tr, 10, 8, 4)
		first, _, _ := gradient(t, tr, groups)
		for range 3 {
			again, _, _ := gradient(t, tr, groups)
			for i := range first {
				for k := range first[i] {
					if first[i][k] != again[i][k] {
						t.Fatal("the gradient of the same groups changed")
					}
				}
			}
		}
	})
}

// TestGradientEqualsThatOfAnUpdate: bit for bit, with the same metrics, once or more often; the weights stay. With
// Update.First, the moment of a rule with beta1 0, [gradient] reads what an update applies.
func TestGradientEqualsThatOfAnUpdate(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		for name, o := range objectivesOn(t, e) {
			tr := trainer(t, e, testkit.Model(t, "llama"), o)
			groups := rollouts(t, tr, 12, 4, 4)
			update, _, measured := gradient(t, tr, groups)
			want, before := narrow(update), flat(t, tr)
			for range 2 {
				m := train.NewMetrics()
				got, err := tr.Gradient(groups, m)
				if err != nil || !slices.Equal(got, want) {
					t.Fatalf("%s: %d numbers, %v: want the %d of the update", name, len(got), err, len(want))
				}
				if got := m.Means("")[MetricLoss]; got != measured[MetricLoss] {
					t.Errorf("%s: loss %v, want %v", name, got, measured[MetricLoss])
				}
			}
			if !slices.Equal(flat(t, tr), before) {
				t.Errorf("%s: the gradient has moved the weights", name)
			}
		}
	})
}

// narrow joins the tensors of a gradient.
func narrow(grads [][]float64) (flat []float32) {
	for _, g := range grads {
		for _, x := range g {
			flat = append(flat, float32(x))
		}
	}
	return flat
}

func flat(t *testing.T, tr *Trainer) []float32 {
	t.Helper()
	return expect.Must(tr.Learner.Flat())(t)
}

// TestScoresAreTheGradientWithAdvantagesAsWeights: GRPO's gradient at ratio 1 and without KL is the gradient of
// -weight·A·logp. Its own test compares it with differences.
func TestScoresAreTheGradientWithAdvantagesAsWeights(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		tr := trainer(t, e, testkit.Model(t, "llama"), objectives()["one update without KL"])
		groups := rollouts(t, tr, 13, 4, 4)
		want := expect.Must(tr.Gradient(groups, train.NewMetrics()))(t)
		b := newMinibatch(tr.Options, groups)
		weights := make([][][]float32, len(groups))
		for i, g := range groups {
			for a, answer := range g.Answers {
				w := -float32(b.weights[b.first[i]+a]) * float32(g.Advantages[a])
				weights[i] = append(weights[i], slices.Repeat([]float32{w}, len(answer)))
			}
		}
		got := expect.Must(tr.Scores(groups, weights))(t)
		for i := range want {
			if d := math.Abs(float64(got[i] - want[i])); d > 1e-6 {
				t.Fatalf("number %d is %v, want %v", i, got[i], want[i])
			}
		}
		weights[0][0] = weights[0][0][1:]
		if _, err := tr.Scores(groups, weights); err == nil || !strings.Contains(err.Error(), "want one for every token") {
			t.Errorf("too few weights: %v", err)
		}
	})
}

// TestMeasureUnderOtherWeights: a reference's log-probs come from its buffers, not from the learner's.
func TestMeasureUnderOtherWeights(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		a := trainer(t, e, model.Init(testkit.Config(t, "llama"), 7), objectives()["one update"])
		b := trainer(t, e, model.Init(testkit.Config(t, "llama"), 8), a.Options)
		groups := rollouts(t, a, 11, 3, 4)
		own := expect.Must(b.Measure(groups, nil))(t)
		lent := expect.Must(a.Measure(groups, b.Learner.Weights()))(t)
		sameLogps(t, "other weights", own, lent, 0)
		if own[0][0][0] == groups[0].Sampled[0][0] {
			t.Error("two models agree")
		}
	})
}

func TestUpdateRefusesWhatDoesNotFit(t *testing.T) {
	tr := trainer(t, backendtest.Go(t), testkit.Model(t, "llama"), objectives()["several updates"])
	for want, spoil := range map[string]func(g []Group){
		"group 1 of the minibatch: 4 answers, 3 advantages, 0 masks: want one for each " +
			"answer": func(g []Group) { g[1].Advantages = g[1].Advantages[:3] },
		"group 0 of the minibatch: the advantage of answer 2 is NaN: want a finite " +
			"number": func(g []Group) { g[0].Advantages[2] = math.NaN() },
		"group 2 of the minibatch: the old policy's log-probs are given for some groups and not for others: want " +
			"all or none": func(g []Group) { g[2].Old = nil },
		"group 3 of the minibatch: the reference log-probs have other lengths than the answers: want one for every " +
			"token": func(g []Group) { g[3].Reference = nil },
		"group 1: the prompt has no tokens: want at least " +
			"one": func(g []Group) { g[1].Prompt = nil },
		"group 1: token 64: want one below the model's vocabulary size " +
			"64": func(g []Group) { g[1].Answers[0][0] = 64 },
	} {
		groups := rollouts(t, tr, 12, 4, 4)
		spoil(groups)
		if _, err := tr.Update(groups, sgd, 1, train.NewMetrics()); err == nil || err.Error() != want {
			t.Errorf("error %v\nwant  %s", err, want)
		}
	}
}

// TestUpdatesOnADeviceEqualThoseOnTheHost: with look-ups and the optimiser in the graph, as on a GPU, two updates
// give the same weights.
func TestUpdatesOnADeviceEqualThoseOnTheHost(t *testing.T) {
	var weights [2][][]float64
	for i, host := range []bool{true, false} {
		e := backendtest.Go(t)
		e.Wants.HostRows, e.Wants.SharedMemory = host, host
		tr := trainer(t, e, testkit.Model(t, "qwen2"), objectives()["several updates"])
		groups := rollouts(t, tr, 13, 4, 4)
		for range 2 {
			expect.Must(tr.Update(groups, train.AdamW{Options: adamw.Options{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-3,
				MaxNorm: 1}}, 1e-2, train.NewMetrics()))(t)
		}
		got, _, err := tr.Learner.Read()
		expect.OK(t, err)
		weights[i] = wide(got.Weights)
	}
	if d := farthest(weights[0], weights[1]); d > 2e-5 {
		t.Errorf("weights differ by %.1e of their maximum", d)
	}
}
