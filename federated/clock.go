package federated

import (
	"math"
	"slices"
)

// Times are the times that n agents need per gradient, from 1 to ratio by equal factors. A single agent has 1.
func Times(n int, ratio float64) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = math.Pow(ratio, float64(i)/float64(max(1, n-1)))
	}
	return out
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
