package losses

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
)

func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tolerance) {
		t.Errorf("%s: got %.12g, want %.12g (within %g)", what, got, want, tolerance)
	}
}

// onePair is a batch of one pair: log-ratios A = -10+12 = 2 and B = -20+19 = -1, 4 and 5 tokens, Δr = 0.5.
func onePair() Batch {
	return Batch{
		PolicyChosen: []float64{-10}, PolicyRejected: []float64{-20},
		ReferenceChosen: []float64{-12}, ReferenceRejected: []float64{-19},
		ChosenLengths: []float64{4}, RejectedLengths: []float64{5},
		RewardGap: []float64{0.5},
	}
}

func plain(o Options) Options { o.Prior = None; return o }

// Numbers that a reader can check by hand on onePair().
func TestHandNumbers(t *testing.T) {
	ipoSum := Defaults(IPO)
	ipoSum.Logps = new(Sum)
	cpoSum := Defaults(CPO)
	cpoSum.NLL = new(Sum)
	smooth := plain(Defaults(DPO))
	smooth.LabelSmoothing = new(0.25)
	reached := plain(Defaults(Hinge))
	reached.Beta = 1
	odds := func(x float64) float64 { return x - math.Log(1-math.Exp(x)) }
	logistic := func(u float64) float64 { return math.Log(1 + math.Exp(-u)) }
	down := func(u float64) float64 { return 1 / (1 + math.Exp(u)) } // σ(-u)
	for _, c := range []struct {
		name                         string
		o                            Options
		loss, gradChosen, gradReject float64
		rewardChosen, rewardReject   float64
	}{
		{"dpo", plain(Defaults(DPO)), logistic(0.3), -0.1 * down(0.3), 0.1 * down(0.3), 0.2, -0.1},
		{"mappo dpo", Defaults(DPO), logistic(0.25), -0.1 * down(0.25), 0.05 * down(0.25), 0.2, -0.1},
		{"smoothed dpo", smooth, 0.75*logistic(0.3) + 0.25*logistic(-0.3), 0.1 * (0.25 - down(0.3)),
			-0.1 * (0.25 - down(0.3)), 0.2, -0.1},
		// A' = 2/4, B' = -1/5, offset 5: u = 0.5+0.2-5 = -4.3, with the prior 0.5+0.1-5 = -4.4
		{"ipo", plain(Defaults(IPO)), 18.49, -8.6 / 4, 8.6 / 5, 0.2, -0.1},
		{"mappo ipo", Defaults(IPO), 19.36, -8.8 / 4, 8.8 / 10, 0.2, -0.1},
		{"mappo ipo, sums", ipoSum, 6.25, -5, 2.5, 0.2, -0.1}, // u = 2+0.5-5
		// -10/4 and -20/5 times 0.1: -0.25+0.4-1 = -0.85, with the prior -0.25+0.2-1 = -1.05
		{"simpo", plain(Defaults(SimPO)), logistic(-0.85), -0.025 * down(-0.85), 0.02 * down(-0.85), -0.25, -0.4},
		{"mappo simpo", Defaults(SimPO), logistic(-1.05), -0.025 * down(-1.05), 0.01 * down(-1.05), -0.25, -0.4},
		// u = -1+2 = 1, with the prior -1+1 = 0; NLL 10/4 tokens, times 0.2
		{"cpo", plain(Defaults(CPO)), logistic(1) + 0.5, -0.1*down(1) - 0.05, 0.1 * down(1), -1, -2},
		{"mappo cpo", Defaults(CPO), math.Ln2 + 0.5, -0.05 - 0.05, 0.025, -1, -2},
		{"mappo cpo, sum", cpoSum, math.Ln2 + 2, -0.05 - 0.2, 0.025, -1, -2},
		{"hinge", plain(Defaults(Hinge)), 0.7, -0.1, 0.1, 0.2, -0.1}, // u = 0.3 as in dpo
		{"mappo hinge", Defaults(Hinge), 0.75, -0.1, 0.05, 0.2, -0.1},
		{"hinge, reached", reached, 0, 0, 0, 2, -1}, // u = 3
		{"robust", plain(Defaults(Robust)), (0.9*logistic(0.3) - 0.1*logistic(-0.3)) / 0.8,
			-0.1 * (0.9*down(0.3) + 0.1*down(-0.3)) / 0.8, 0.1 * (0.9*down(0.3) + 0.1*down(-0.3)) / 0.8, 0.2, -0.1},
		{"rpo", plain(Defaults(RPO)), logistic(0.3) + 2.5, -0.1*down(0.3) - 0.25, 0.1 * down(0.3), 0.2, -0.1},
		{"mappo rpo", Defaults(RPO), logistic(0.25) + 2.5, -0.1*down(0.25) - 0.25, 0.05 * down(0.25), 0.2, -0.1},
		// p = e^-2.5 and e^-4
		{"orpo", Defaults(ORPO), 2.5 + 0.1*logistic(odds(-2.5)-odds(-4)),
			-0.1*down(odds(-2.5)-odds(-4))/(1-math.Exp(-2.5))/4 - 0.25,
			0.1 * down(odds(-2.5)-odds(-4)) / (1 - math.Exp(-4)) / 5, -0.25, -0.4},
	} {
		out, err := c.o.Host(onePair())
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		near(t, c.name+" loss", out.Loss[0], c.loss, 1e-12)
		near(t, c.name+" grad chosen", out.GradChosen[0], c.gradChosen, 1e-12)
		near(t, c.name+" grad rejected", out.GradRejected[0], c.gradReject, 1e-12)
		near(t, c.name+" reward chosen", out.ChosenRewards[0], c.rewardChosen, 1e-12)
		near(t, c.name+" reward rejected", out.RejectedRewards[0], c.rewardReject, 1e-12)
	}
}

// everyOption lists all losses of pairs with the priors that they have, and with each mode and option on and off.
func everyOption() []Options {
	var all []Options
	for _, kind := range Types() {
		for _, prior := range []string{MaPPO, None} {
			for _, letter := range []bool{false, true} {
				o := Defaults(kind)
				if kind == ORPO && prior == MaPPO || kind == Hinge && letter || kind == KTO {
					continue
				}
				o.Prior, o.Beta = prior, 0.4
				if letter && o.Logps != nil {
					o.Logps = new(Sum)
				}
				if letter && o.NLL != nil {
					o.NLL = new(Sum)
				}
				if letter && o.LabelSmoothing != nil {
					o.LabelSmoothing = new(0.2)
				}
				all = append(all, o)
			}
		}
	}
	return all
}

// randomBatch is a batch of n pairs with log-ratios of a few units.
func randomBatch(n int, seed uint64) Batch {
	r := rand.New(rand.NewPCG(seed, 1))
	fill := func(f func() float64) []float64 {
		v := make([]float64, n)
		for i := range v {
			v[i] = f()
		}
		return v
	}
	b := Batch{
		ReferenceChosen:   fill(func() float64 { return -2 - 20*r.Float64() }),
		ReferenceRejected: fill(func() float64 { return -2 - 20*r.Float64() }),
		ChosenLengths:     fill(func() float64 { return float64(1 + r.IntN(30)) }),
		RejectedLengths:   fill(func() float64 { return float64(1 + r.IntN(30)) }),
		RewardGap:         fill(r.Float64),
	}
	i := -1
	b.PolicyChosen = fill(func() float64 { i++; return b.ReferenceChosen[i] + 2*r.NormFloat64() })
	i = -1
	b.PolicyRejected = fill(func() float64 { i++; return b.ReferenceRejected[i] + 2*r.NormFloat64() })
	return b
}

func describe(o Options) string {
	return fmt.Sprintf("%s: %s", o.Name(), o.Formula())
}

func TestHostGradientsAreFiniteDifferences(t *testing.T) {
	const n, h = 5, 1e-5
	lossAt := func(o Options, b Batch, vector []float64, i int, x float64) float64 {
		kept := vector[i]
		vector[i] = x
		defer func() { vector[i] = kept }()
		out := expect.Must(o.Host(b))(t)
		return out.Loss[i]
	}
	for _, o := range everyOption() {
		b := randomBatch(n, 7)
		out := expect.Must(o.Host(b))(t)
		for i := range n {
			for _, side := range []struct {
				name   string
				vector []float64
				grad   float64
			}{{"chosen", b.PolicyChosen, out.GradChosen[i]}, {"rejected", b.PolicyRejected, out.GradRejected[i]}} {
				x := side.vector[i]
				slope := (lossAt(o, b, side.vector, i, x+h) - lossAt(o, b, side.vector, i, x-h)) / (2 * h)
				near(t, fmt.Sprintf("%s: pair %d, %s", describe(o), i, side.name), side.grad, slope,
					1e-7*(1+math.Abs(slope)))
			}
		}
	}
}

func TestGapOfOneIsThePlainLoss(t *testing.T) {
	for _, o := range everyOption() {
		if o.Prior == None {
			continue
		}
		b := randomBatch(8, 11)
		for i := range b.RewardGap {
			b.RewardGap[i] = 1
		}
		with := expect.Must(o.Host(b))(t)
		without := expect.Must(plain(o).Host(b))(t)
		if got, want := fmt.Sprint(with), fmt.Sprint(without); got != want {
			t.Errorf("%s with Δr = 1:\n%s\nplain:\n%s", describe(o), got, want)
		}
		if got, want := runGraph(t, o, b), runGraph(t, plain(o), b); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s with Δr = 1 in the graph:\n%v\nplain:\n%v", describe(o), got, want)
		}
	}
}

// With Δr = 0 the prior only raises the chosen response: nothing pushes the rejected one down, in the graph as on the
// host, also at margins of a million.
func TestGapOfZeroLeavesTheRejectedAlone(t *testing.T) {
	for _, o := range everyOption() {
		if o.Prior == None {
			continue
		}
		for _, b := range []Batch{randomBatch(8, 13), extremeBatch()} {
			b.RewardGap = make([]float64, b.Pairs())
			host := expect.Must(o.Host(b))(t)
			got := runGraph(t, o, b)
			for i := range b.Pairs() {
				near(t, describe(o)+" grad rejected", host.GradRejected[i], 0, 0)
				near(t, describe(o)+" grad rejected in the graph", got.GradRejected[i], 0, 0)
			}
			nearAll(t, describe(o)+" grad chosen", got.GradChosen, host.GradChosen, 2e-5)
		}
	}
}

func TestHostExtremeMarginsStayFinite(t *testing.T) {
	for _, o := range everyOption() {
		out := expect.Must(o.Host(extremeBatch()))(t)
		for _, v := range [][]float64{out.Loss, out.GradChosen, out.GradRejected, out.ChosenRewards,
			out.RejectedRewards} {
			wantFinite(t, describe(o), v)
		}
	}
}

// extremeBatch has margins of ±1e6, an exact tie, and a padding pair of zeros.
func extremeBatch() Batch {
	return Batch{
		PolicyChosen: []float64{0, -1e6, -5, 0}, PolicyRejected: []float64{-1e6, 0, -5, 0},
		ReferenceChosen: []float64{-1e6, 0, -5, 0}, ReferenceRejected: []float64{0, -1e6, -5, 0},
		ChosenLengths: []float64{1, 1, 3, 0}, RejectedLengths: []float64{1, 1, 3, 0},
		RewardGap: []float64{1, 1, 0.5, 0},
	}
}

func wantFinite(t *testing.T, what string, v []float64) {
	t.Helper()
	for i, x := range v {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			t.Errorf("%s: pair %d is %v", what, i, x)
		}
	}
}

func TestHostNamesAMissingVector(t *testing.T) {
	b := onePair()
	b.RewardGap = nil
	_, err := Defaults(DPO).Host(b)
	if err == nil || !strings.Contains(err.Error(), "RewardGap has 0 numbers") {
		t.Errorf("error %v, want one that names RewardGap", err)
	}
	if _, err := plain(Defaults(DPO)).Host(b); err != nil {
		t.Errorf("plain dpo needs no gap: %v", err)
	}
	b.ReferenceChosen, b.ReferenceRejected = nil, nil
	if _, err := plain(Defaults(SimPO)).Host(b); err != nil {
		t.Errorf("simpo needs no reference: %v", err)
	}
}

func TestMetrics(t *testing.T) {
	// Rewards 0.1·(2, 0, 0) and 0.1·(-1, 0, 5): one pair right, a tie (not right), one wrong.
	b := Batch{
		PolicyChosen: []float64{-10, -3, -2}, PolicyRejected: []float64{-20, -3, -5},
		ReferenceChosen: []float64{-12, -3, -2}, ReferenceRejected: []float64{-19, -3, -10},
		ChosenLengths: []float64{1, 1, 1}, RejectedLengths: []float64{1, 1, 1}, RewardGap: []float64{1, 0.5, 0},
	}
	out := expect.Must(Defaults(DPO).Host(b))(t)
	got := out.Metrics(b)
	want := map[string]float64{
		"loss": (out.Loss[0] + out.Loss[1] + out.Loss[2]) / 3, "logps/chosen": -5, "logps/rejected": -28. / 3,
		"rewards/chosen": 0.2 / 3, "rewards/rejected": 0.4 / 3, "rewards/accuracies": 1. / 3,
		"rewards/margins": -0.2 / 3, "prior/reward_gap": 0.5,
	}
	for name, x := range want {
		if len(got[name]) != 3 {
			t.Fatalf("%s has %d values", name, len(got[name]))
		}
		near(t, name, (got[name][0]+got[name][1]+got[name][2])/3, x, 1e-12)
	}
	if len(got) != len(want) {
		t.Errorf("metrics %v, want %v", got, want)
	}
	b.RewardGap = nil
	if _, ok := out.Metrics(b)[MetricRewardGap]; ok {
		t.Error("found a reward gap in a batch without rewards")
	}
}

// TestTies: rewards that differ by no more than float32 rounds sums of this size are a tie; a larger difference is not.
func TestTies(t *testing.T) {
	ulp := float64(math.Nextafter32(100, 200)) - 100
	for _, c := range []struct {
		o                 Options
		chosen, reference float64
		wins              float64
	}{
		{Defaults(DPO), -100, -100, 0},
		{Defaults(DPO), -100 + ulp, -100, 0}, // as two passes of float32 give it
		{Defaults(DPO), -100 + 8*ulp, -100, 0},
		{Defaults(DPO), -100 + 1e-3, -100, 1},
		{Defaults(IPO), -100 + ulp, -100, 0},
		{Defaults(CPO), -100 + ulp, 0, 0},
		{Defaults(SimPO), -100 + ulp, 0, 0},
		{Defaults(SimPO), -100 + 1e-3, 0, 1},
	} {
		b := Batch{
			PolicyChosen: []float64{c.chosen}, PolicyRejected: []float64{-100}, ReferenceChosen: []float64{c.reference},
			ReferenceRejected: []float64{-100}, ChosenLengths: []float64{20}, RejectedLengths: []float64{20},
			RewardGap: []float64{1},
		}
		out := expect.Must(c.o.Host(b))(t)
		if got := out.Metrics(b)[MetricAccuracies][0]; got != c.wins {
			t.Errorf("%s, log p %v and reference %v: %v wins, want %v", c.o.Type, c.chosen, c.reference, got, c.wins)
		}
	}
}

func TestStepZero(t *testing.T) {
	smooth := Defaults(DPO)
	smooth.LabelSmoothing = new(0.1)
	for _, c := range []struct {
		o     Options
		want  float64
		known bool
	}{
		{plain(Defaults(DPO)), math.Ln2, true}, {Defaults(DPO), math.Ln2, true}, {smooth, math.Ln2, true},
		{Defaults(IPO), 25, true}, {Defaults(SimPO), 0, false}, {Defaults(CPO), 0, false}, {Defaults(Hinge), 1, true},
		{Defaults(Robust), math.Ln2, true}, {Defaults(RPO), 0, false}, {Defaults(ORPO), 0, false},
		{Defaults(KTO), 0, false},
	} {
		got, known := c.o.StepZero()
		if near(t, describe(c.o), got, c.want, 1e-12); known != c.known {
			t.Errorf("%s: known %v, want %v", describe(c.o), known, c.known)
		}
	}
}
