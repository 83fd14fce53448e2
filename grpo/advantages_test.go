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
}

func TestEqualRewardsHaveNoAdvantage(t *testing.T) {
	for _, std := range []string{Sample, Population, None} {
		for _, rewards := range [][]float64{nil, {3}, {0.1, 0.1, 0.1}, {-1, -1}} {
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
