package grpo

import (
	"math"
	"slices"
)

// epsilon keeps a small deviation from blowing advantages up.
const epsilon = 1e-6

// Advantages are the rewards of one group less their mean, divided by their deviation plus 1e-6 (std: sample,
// population) or not at all (none). Rewards are finite.
//
// degenerate says that all of them are 0, since the rewards are equal or fewer than two: the group teaches nothing.
func Advantages(rewards []float64, std string) (advantages []float64, degenerate bool) {
	advantages = make([]float64, len(rewards))
	if equalRewards(rewards) {
		return advantages, true
	}
	mean, deviation := moments(rewards, std)
	for i, r := range rewards {
		advantages[i] = (r - mean) / deviation
	}
	return advantages, false
}

// equalRewards compares them with each other and not with their mean, which rounding may move.
func equalRewards(rewards []float64) bool {
	return !slices.ContainsFunc(rewards, func(r float64) bool { return r != rewards[0] })
}

// moments are the mean of the rewards and what their distance from it is divided by.
func moments(rewards []float64, std string) (mean, divisor float64) {
	n, sum := float64(len(rewards)), 0.0
	for _, r := range rewards {
		sum += r
	}
	mean = sum / n
	squares := 0.0
	for _, r := range rewards {
		squares += (r - mean) * (r - mean)
	}
	switch std {
	case Sample:
		return mean, math.Sqrt(squares/(n-1)) + epsilon
	case Population:
		return mean, math.Sqrt(squares/n) + epsilon
	}
	return mean, 1
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
