package grpo

import (
	"math"
	"slices"
	"testing"
)

// Numbers to check by hand: mean 0.5, deviations ±0.5.
func TestAdvantagesByHand(t *testing.T) {
	rewards := []float64{0, 1, 0, 1}
	for std, want := range map[string]float64{None: 0.5, Population: 0.5 / (0.5 + 1e-6),
		Sample: 0.5 / (math.Sqrt(1.0/3) + 1e-6)} {
		got, degenerate := Advantages(rewards, std)
		nearAll(t, std, got, []float64{-want, want, -want, want}, 1e-12)
		if degenerate {
			t.Errorf("%s: the group is said to teach nothing", std)
		}
	}
	if _, degenerate := Advantages([]float64{0, 1e-6}, Sample); degenerate {
		t.Error("a group of rewards 0 and 1e-6 is said to teach nothing")
	}
}

// TestEqualRewardsHaveNoAdvantage: such as 3/3 - 2/3 and 1/3, which float64 keeps apart.
func TestEqualRewardsHaveNoAdvantage(t *testing.T) {
	one, third := 1.0, 1.0/3
	thirds := []float64{one - 2*third, third, third}
	for _, std := range []string{Sample, Population, None} {
		for _, rewards := range [][]float64{nil, {3}, {0.1, 0.1, 0.1}, {-1, -1}, thirds} {
			got, degenerate := Advantages(rewards, std)
			nearAll(t, std, got, make([]float64, len(rewards)), 0)
			if !degenerate {
				t.Errorf("%v: the group is said to teach something", rewards)
			}
		}
	}
}

// TestBaselinesByHand: two groups, of rewards 0, 1, 1 and 0, 0, 3; the batch has mean 5/6.
func TestBaselinesByHand(t *testing.T) {
	rewards := [][]float64{{0, 1, 1}, {0, 0, 3}}
	all := slices.Concat(rewards...)
	for _, c := range []struct {
		baseline, std string
		want          []float64 // before the batch's deviation
	}{
		{LeaveOneOut, None, []float64{0 - 1, 1 - 0.5, 1 - 0.5, 0 - 1.5, 0 - 1.5, 3 - 0}},
		{OfBatch, None, []float64{-5. / 6, 1. / 6, 1. / 6, -5. / 6, -5. / 6, 13. / 6}},
		{"", OfBatch, []float64{-2. / 3, 1. / 3, 1. / 3, -1, -1, 2}},
		{OfBatch, OfBatch, []float64{-5. / 6, 1. / 6, 1. / 6, -5. / 6, -5. / 6, 13. / 6}},
	} {
		if c.std == OfBatch {
			squares := 0.0 // their mean is 0
			for _, x := range c.want {
				squares += x * x
			}
			for i := range c.want {
				c.want[i] /= math.Sqrt(squares/float64(len(all)-1)) + 1e-6
			}
		}
		o := Options{Baseline: c.baseline, Std: c.std}
		nearAll(t, c.baseline+", "+c.std, slices.Concat(o.Advantages(rewards)...), c.want, 1e-12)
	}
	if got := (Options{Baseline: LeaveOneOut, Std: OfBatch}).Advantages([][]float64{{0.1, 0.1, 0.1}, {2}}); got[0][0] != 0 ||
		got[1][0] != 0 {
		t.Error(got)
	}
}

// TestCombined: of two rewards, the second in hundreds; their sum hides the first, each by itself does not.
func TestCombined(t *testing.T) {
	rewards := [][][]float64{{{0, 1}, {1, 1}}, {{100, 0}, {0, 300}}}
	o := Options{Std: None}
	nearAll(t, "sum", slices.Concat(o.Combined(rewards, []float64{2, 1})...), []float64{49, -49, -150, 150}, 1e-12)
	o.Std, o.Combine = Sample, EachReward
	root := math.Sqrt(0.5)
	a, b, c := 0.5/(root+1e-6), 50/(100*root+1e-6), 150/(300*root+1e-6)
	sum := []float64{-2*a + b, 2*a - b, -c, c}
	std := math.Sqrt((2*sum[0]*sum[0]+2*c*c)/3) + 1e-6
	for i := range sum {
		sum[i] /= std
	}
	nearAll(t, "each", slices.Concat(o.Combined(rewards, []float64{2, 1})...), sum, 1e-12)
}

// TestAdvantagesAreBounded: of every combination of the options, on rewards that are equal within a group, far apart,
// alone in their group, or not for the judge, no advantage of n answers is beyond √n, and none is not a number. Without
// a deviation the bound is the range of the rewards, as the option says.
func TestAdvantagesAreBounded(t *testing.T) {
	nan := math.NaN()
	batches := map[string][][]float64{
		"equal groups":       {{1, 1, 1, 1}, {0, 0, 0, 0}},
		"one group equal":    {{1, 1, 1, 1}, {0, 1, 0, 0}},
		"one answer":         {{1}, {0, 0, 0, 1}, {0.5}},
		"one answer in all":  {{1}, {}},
		"all equal":          {{0.1, 0.1, 0.1}, {0.1, 0.1}},
		"large and equal":    {{1e15 + 0.1, 1e15 + 0.1, 1e15 + 0.1}, {1e15 + 0.1}},
		"nearly equal":       {{1, 1, 1 + 1e-9, 1}, {1, 1, 1, 1}},
		"one far away":       {{0, 0, 0, 0, 0, 0, 0, 1e9}, {0, 0}},
		"no group":           {{}, {}},
		"some for no judge":  {{nan, 1, 1, nan}, {0, 0, nan, 1}},
		"a group for no one": {{nan, nan}, {0, 1}, {nan, 1}},
	}
	for _, baseline := range []string{"", LeaveOneOut, OfBatch} {
		for _, std := range []string{Sample, Population, OfBatch, None} {
			for _, combine := range []string{"", EachReward} {
				for name, rewards := range batches {
					o := Options{Baseline: baseline, Std: std, Combine: combine}
					n, widest, lo, hi := 0.0, 0.0, math.Inf(1), math.Inf(-1)
					for _, group := range rewards {
						n, widest = n+float64(len(group)), max(widest, float64(len(group)))
						for _, r := range numbers(group) {
							lo, hi = min(lo, r), max(hi, r)
						}
					}
					bound := math.Sqrt(n)
					switch {
					case combine == EachReward: // divided by the deviation of the batch, whatever std is
					case std == None:
						bound = hi - lo
					case baseline == LeaveOneOut && std == Population: // G/√(G-1) of a group, which is above √G
						bound = max(bound, widest/math.Sqrt(widest-1))
					}
					of, weights := [][][]float64{rewards, rewards}, []float64{1, -0.5}
					for _, group := range slices.Concat(o.Combined(of, weights), o.Combined(of[:1], weights[:1])) {
						for _, a := range group {
							if math.IsNaN(a) || math.Abs(a) > bound*(1+1e-9) {
								t.Errorf("baseline %q, std %s, combine %q, %s: an advantage is %v, beyond %v", baseline,
									std,
									combine, name, a, bound)
							}
						}
					}
				}
			}
		}
	}
}

// TestBatchBaselineByHand: one group of ones and one of zeros have mean 1/2 and a deviation of √(2/7) over the batch.
func TestBatchBaselineByHand(t *testing.T) {
	rewards := [][]float64{{1, 1, 1, 1}, {0, 0, 0, 0}}
	for std, divisor := range map[string]float64{Sample: math.Sqrt(2. / 7), OfBatch: math.Sqrt(2. / 7),
		Population: 0.5} {
		a := 0.5 / (divisor + 1e-6)
		got := Options{Baseline: OfBatch, Std: std}.Advantages(rewards)
		nearAll(t, std, slices.Concat(got...), []float64{a, a, a, a, -a, -a, -a, -a}, 1e-12)
	}
}

// TestLeftOutRewards: a judge that an answer is not for counts neither in a sum nor in its own moments.
func TestLeftOutRewards(t *testing.T) {
	rewards := [][][]float64{{{0, 1, 1}}, {{math.NaN(), 4, 2}}}
	weights := []float64{1, 0.5}
	nearAll(t, "sum", Options{Std: None}.Combined(rewards, weights)[0], []float64{-5. / 3, 4. / 3, 1. / 3}, 1e-12)
	own := []float64{-2. / 3, 1./3 + 0.5, 1./3 - 0.5}
	scale([][]float64{own})
	nearAll(t, "each", Options{Std: None, Combine: EachReward}.Combined(rewards, weights)[0], own, 1e-12)
}
