package grpo

import (
	"math"
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
