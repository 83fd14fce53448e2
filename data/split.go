package data

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Split divides the indices 0..n-1 into training and evaluation: round(fraction*n) of them, drawn by seed, go to
// evaluation, at least one and never all when 0 < fraction < 1 and n > 1. Both lists ascend. The same n, fraction and
// seed give the same split on every machine.
func Split(n int, fraction float64, seed uint64) (train, eval []int) {
	count := int(math.Round(fraction * float64(n)))
	if fraction > 0 && fraction < 1 && n > 1 {
		count = min(max(count, 1), n-1)
	}
	count = min(max(count, 0), n)
	order := rand.New(rand.NewPCG(seed, 0x73706c6974)).Perm(n)
	eval = slices.Sorted(slices.Values(order[:count]))
	train = slices.Sorted(slices.Values(order[count:]))
	return train, eval
}

// Pick returns the elements at these indices.
func Pick[T any](from []T, indices []int) []T {
	out := make([]T, len(indices))
	for i, at := range indices {
		out[i] = from[at]
	}
	return out
}
