package ci

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Split divides the indices 0..n-1 into training, validation and test: round(validation*n) and round(test*n) of them,
// drawn by seed, go to validation and to test, the rest to training. 0.09 and 0.10 make 590, 66 and 73 of the 729
// released items. If n allows, a part with a fraction above 0 gets at least one item, and so does training unless the
// fractions add up to 1. All lists ascend. The same arguments give the same split on every machine.
func Split(n int, validation, test float64, seed uint64) (trainPart, validationPart, testPart []int) {
	v, t := splitSizes(n, validation, test)
	order := rand.New(rand.NewPCG(seed, 0x63692d73706c6974)).Perm(max(n, 0))
	sorted := func(part []int) []int { return slices.Sorted(slices.Values(part)) }
	return sorted(order[v+t:]), sorted(order[:v]), sorted(order[v : v+t])
}

// splitSizes are the numbers of validation and of test items.
func splitSizes(n int, validation, test float64) (v, t int) {
	part := func(fraction float64) int {
		count := int(math.Round(fraction * float64(n)))
		if fraction > 0 {
			count = max(count, 1)
		}
		return min(max(count, 0), max(n, 0))
	}
	v, t = part(validation), part(test)
	room := max(n, 0)
	if validation+test < 1 {
		room = max(room-1, 0) // one to train on
	}
	for v+t > room { // by rounding, or with a handful of items: take from the larger part
		if v > t {
			v--
		} else {
			t--
		}
	}
	return v, t
}

// Part is a part of a split.
type Part uint64

// The parts of a split; All is the items of a file in their order.
const (
	Train Part = iota
	Validation
	Test
	All
)

// Order is the seed of the order in which the prompt of a part's item i lists its attributes (the last argument of
// Prompt). Every command that puts the items of a run to a model takes it from here, so that all see the same prompts.
func Order(seed uint64, part Part, i int) uint64 {
	return rand.New(rand.NewPCG(seed, uint64(part)<<32|uint64(i))).Uint64()
}
