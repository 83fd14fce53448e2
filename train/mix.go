package train

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/posttrain/posttrain/data"
)

// Mix says in which shares an epoch draws the examples of several sources. The zero Mix draws each example once.
//
// An epoch of a mix has as many draws as there are examples. Source k has n·w[k]/Σw of them, see Shares. Its draws are
// passes over its examples, each pass in an order of its own; the next epoch continues where the one before ended. So
// no example of a source is drawn a second time before all the others were drawn once, whatever the epochs.
type Mix struct {
	Part    []int     // [examples] the source of each
	Weights []float64 // [sources] above 0; nil: no mix
}

// MixOf is the mix of examples by the weights of their sources.
func MixOf(examples []Example, weights []float64) Mix {
	m := Mix{Weights: weights}
	for _, x := range examples {
		m.Part = append(m.Part, x.Part)
	}
	return m
}

// On says that there are weights.
func (m Mix) On() bool { return m.Weights != nil }

// Pick is the mix of some examples.
func (m Mix) Pick(keep []int) Mix {
	if m.Part != nil {
		m.Part = data.Pick(m.Part, keep)
	}
	return m
}

// Sizes are how many examples each of n sources has.
func (m Mix) Sizes(n int) []int {
	sizes := make([]int, n)
	for _, k := range m.Part {
		sizes[k]++
	}
	return sizes
}

// Err says why n examples cannot be drawn by the mix; nil without a mix.
func (m Mix) Err(n int) error {
	if !m.On() {
		return nil
	}
	if len(m.Part) != n {
		return fmt.Errorf("a mix of %d examples: want %d", len(m.Part), n)
	}
	for k, size := range m.Sizes(len(m.Weights)) {
		if w := m.Weights[k]; !(w > 0) || math.IsInf(w, 0) || size == 0 {
			return fmt.Errorf("source %d of a mix has %d examples and weight %v: want both above 0", k+1, size, w)
		}
	}
	return nil
}

// Shares are how many draws of an epoch each source has: whole numbers with the sum len(Part), by the largest
// remainders, of equal ones the first.
func (m Mix) Shares() []int {
	sum, left, most := 0.0, len(m.Part), slices.Max(m.Weights)
	for _, w := range m.Weights {
		sum += w / most // of great weights the sum would be infinite
	}
	shares, rest := make([]int, len(m.Weights)), make([]float64, len(m.Weights))
	for k, w := range m.Weights {
		exact := float64(len(m.Part)) * (w / most / sum)
		shares[k] = int(math.Floor(exact))
		rest[k] = exact - math.Floor(exact)
		left -= shares[k]
	}
	order := Order(len(rest), 0, 0, false)
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(rest[b], rest[a]) })
	for _, k := range order[:left] {
		shares[k]++
	}
	return shares
}

// Order is the order of n examples in an epoch, by the seed and the epoch alone. Without shuffling each source keeps
// its order, and the sources take turns evenly.
func (m Mix) Order(n int, seed uint64, epoch int, shuffle bool) []int {
	if !m.On() {
		return Order(n, seed, epoch, shuffle)
	}
	members := make([][]int, len(m.Weights))
	for i, k := range m.Part {
		members[k] = append(members[k], i)
	}
	var drawn []int
	shares := m.Shares()
	for k, from := range members {
		own := seed ^ uint64(k+1)*sourceSeed
		drawn = append(drawn, draws(from, epoch*shares[k], shares[k], own, shuffle)...)
	}
	if shuffle {
		return data.Pick(drawn, Order(len(drawn), seed, epoch, true))
	}
	return data.Pick(drawn, alternate(shares))
}

// sourceSeed makes the orders of sources other ones than each other's and that of an epoch.
const sourceSeed = 0x9e3779b97f4a7c15

// draws are n draws of a source, the first of which is the draw number first of the run.
func draws(from []int, first, n int, seed uint64, shuffle bool) (drawn []int) {
	for at, end := first, first+n; at < end; {
		order := Order(len(from), seed, at/len(from), shuffle)[at%len(from):]
		order = order[:min(len(order), end-at)]
		drawn = append(drawn, data.Pick(from, order)...)
		at += len(order)
	}
	return drawn
}

// alternate is an order of draws that lie source by source, in which the j-th of n draws of a source comes at (j+½)/n
// of the epoch.
func alternate(shares []int) []int {
	var at []float64
	for _, n := range shares {
		for j := range n {
			at = append(at, (float64(j)+0.5)/float64(n))
		}
	}
	order := Order(len(at), 0, 0, false)
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(at[a], at[b]) })
	return order
}
