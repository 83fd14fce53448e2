package federated

import (
	"fmt"
	"math"
	"slices"
)

// Pattern spreads the times that agents need per gradient.
type Pattern string

// The patterns.
const (
	OneSlow   Pattern = "one_slow"  // all 1, the last r
	OneFast   Pattern = "one_fast"  // the first 1, all others r
	Geometric Pattern = "geometric" // r^(i/(n−1))
)

// Times returns the times of n agents, from 1 to ratio. A single agent has 1.
func (p Pattern) Times(n int, ratio float64) ([]float64, error) {
	if n < 1 || !(ratio >= 1) || math.IsInf(ratio, 0) {
		return nil, fmt.Errorf("times: found %d agents, ratio %g, want an agent and a ratio of 1 or more", n, ratio)
	}
	last := max(1, n-1)
	out := make([]float64, n)
	for i := range out {
		exponent := 0.0
		switch {
		case p == Geometric:
			exponent = float64(i) / float64(last)
		case p != OneSlow && p != OneFast:
			return nil, fmt.Errorf("times: found %q, want %s, %s or %s", string(p), OneSlow, OneFast, Geometric)
		case p == OneFast && i > 0, p == OneSlow && i == last:
			exponent = 1
		}
		out[i] = math.Pow(ratio, exponent)
	}
	return out, nil
}

// AsyncPerGradient is the mean time between two gradients of an asynchronous method, t̄ = 1/Σ(1/t_i).
func AsyncPerGradient(times []float64) float64 {
	rate := 0.0
	for _, t := range times {
		rate += 1 / t
	}
	return 1 / rate
}

// SyncPerGradient is that time of a synchronous method, whose rounds wait for the slowest agent: t_max/N.
func SyncPerGradient(times []float64) float64 {
	return slices.Max(times) / float64(len(times))
}

// Speedup is how much longer the synchronous method takes for as many gradients: t_max/(N·t̄), at most t_max/t_min.
// Departure: the paper calls t̄ the harmonic mean; that is N·t̄. Its appendix swaps the names of one slow and one fast
// agent and calls their curves quadratic; they are linear: ((N−1)r+1)/N and (r+N−1)/N.
func Speedup(times []float64) float64 { return SyncPerGradient(times) / AsyncPerGradient(times) }
