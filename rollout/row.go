package rollout

import (
	"math"
	"slices"
)

// block is how many neighbouring tokens of the vocabulary one block holds.
const block = 64

// row is the head's output for one token to come: the logits, and what saves looking at most of them. Tokens are chosen
// from it without a pass over the vocabulary, but for flat distributions that are cut off.
type row struct {
	logits      []float32 // [V]
	sums        []float32 // [blocks] of exp((logit - the likeliest's) / temperature)
	maxima      []float32 // [blocks] of the logits
	logSumExp   float32   // of the logits, at temperature 1
	temperature float64   // of the sums
}

// choose picks the token for a draw, in float64, and gives its log-prob at temperature 1. It is the token that the
// function choose takes, unless the draw falls on the edge of two tokens as near as the rounding of the sums, 1e-6.
func (x row) choose(r rule, u float64) (token int32, logp float32, err error) {
	best, err := x.best()
	if err != nil {
		return 0, 0, err
	}
	top := float64(x.logits[best])
	switch {
	case r.temperature == 0:
		token = int32(best)
	case r.cutsOff(len(x.logits)):
		token = x.inverseFrom(r, top, x.least(r, top), u)
	case r.temperature != x.temperature:
		token = r.inverse(x.logits, top, float32(math.Inf(-1)), u)
	default:
		token = x.inverse(r, top, u)
	}
	return token, float32(float64(x.logits[token]) - float64(x.logSumExp)), nil
}

// best is the likeliest token, the first of equals.
func (x row) best() (int, error) {
	top := 0
	for b, z := range x.maxima {
		if z > x.maxima[top] {
			top = b
		}
	}
	if i := slices.Index(x.block(top), x.maxima[top]); i >= 0 && !math.IsNaN(float64(x.logSumExp)) && !math.IsInf(float64(x.logSumExp), 0) {
		return top*block + i, nil
	}
	_, _, err := partition(x.logits)
	if err == nil {
		err = broken(top*block, x.maxima[top]) // a sum beyond all numbers
	}
	return 0, err
}

// block is the logits of block b; the last one may be short.
func (x row) block(b int) []float32 { return x.logits[b*block : min((b+1)*block, len(x.logits))] }

// inverse is the first token whose cumulative probability exceeds u, in the order of ids: first the block, by the sums,
// then the token in it.
func (x row) inverse(r rule, top, u float64) int32 {
	total := 0.0
	for _, s := range x.sums {
		total += float64(s)
	}
	sum, at := 0.0, -1
	for b, s := range x.sums {
		if s > 0 {
			at = b
		}
		if sum+float64(s) > u*total {
			break
		}
		sum += float64(s)
	}
	rest := min((u*total-sum)/float64(x.sums[at]), math.Nextafter(1, 0)) // the share of the block
	return int32(at*block) + r.inverse(x.block(at), top, float32(math.Inf(-1)), rest)
}

// inverseFrom is inverse among the tokens whose logits are least or more.
func (x row) inverseFrom(r rule, top float64, least float32, u float64) int32 {
	var ids []int32
	var weights []float64
	total := 0.0
	for b, most := range x.maxima {
		if !(most >= least) {
			continue
		}
		for i, z := range x.block(b) {
			if z >= least {
				w := r.weight(z, top)
				ids, weights, total = append(ids, int32(b*block+i)), append(weights, w), total+w
			}
		}
	}
	sum, last := 0.0, 0
	for i, w := range weights {
		if sum += w; sum > u*total {
			return ids[i]
		}
		if w > 0 {
			last = i
		}
	}
	return ids[last]
}

// least is the least logit that is kept.
func (x row) least(r rule, top float64) float32 {
	least := r.leastByRatio(top)
	if r.topK > 0 && r.topK < len(x.logits) {
		likely := x.likeliest(r.topK)
		kth := selected(likely, r.topK)
		likely = slices.DeleteFunc(likely, func(z float32) bool { return z < kth })
		least = max(least, kth)
		if r.nucleus() {
			least = max(least, r.edge(likely, top, r.topP*r.sum(likely, top)))
		}
	} else if r.nucleus() {
		least = max(least, x.nucleus(r, top))
	}
	return least
}

// likeliest are logits among which are the k greatest: the k-th greatest of the blocks' maxima cannot exceed the k-th
// greatest logit.
func (x row) likeliest(k int) []float32 {
	least := float32(math.Inf(-1))
	if k <= len(x.maxima) {
		least = selected(slices.Clone(x.maxima), k)
	}
	return x.from(least)
}

// from are the logits of least or more.
func (x row) from(least float32) (out []float32) {
	for b, most := range x.maxima {
		if !(most >= least) {
			continue
		}
		for _, z := range x.block(b) {
			if z >= least {
				out = append(out, z)
			}
		}
	}
	return out
}

// nucleus is the least logit that topP keeps: it looks at ever more blocks, those of the greatest maxima first, until
// the logits beyond the maxima of all others hold the share.
func (x row) nucleus(r rule, top float64) float32 {
	target := r.topP * x.total(r, top)
	for k := 8; k < len(x.maxima); k *= 4 {
		if likely := x.from(selected(slices.Clone(x.maxima), k)); r.sum(likely, top) >= target {
			return r.edge(likely, top, target)
		}
	}
	return r.edge(slices.Clone(x.logits), top, target)
}

// total is the sum of all weights.
func (x row) total(r rule, top float64) (sum float64) {
	if r.temperature != x.temperature {
		return r.sum(x.logits, top)
	}
	for _, s := range x.sums {
		sum += float64(s)
	}
	return sum
}

// sum is that of the weights of some logits.
func (r rule) sum(logits []float32, top float64) (sum float64) {
	for _, z := range logits {
		sum += r.weight(z, top)
	}
	return sum
}

// edge is the least of the greatest logits, as few as it takes for their weights to reach target. It sorts none: it
// splits them at a pivot, and goes on with the side that the edge is on. The logits change places.
func (r rule) edge(logits []float32, top, target float64) float32 {
	for {
		if len(logits) == 1 {
			return logits[0]
		}
		pivot := pivotOf(logits)
		more, equal := split(logits, pivot)
		above, at := r.sum(logits[:more], top), float64(equal)*r.weight(pivot, top)
		switch rest := logits[more+equal:]; {
		case above >= target:
			logits = logits[:more]
		case above+at >= target || len(rest) == 0:
			return pivot
		default:
			logits, target = rest, target-above-at
		}
	}
}

// selected is the k-th greatest of some numbers, which change places.
func selected(xs []float32, k int) float32 {
	for {
		pivot := pivotOf(xs)
		more, equal := split(xs, pivot)
		switch {
		case k <= more:
			xs = xs[:more]
		case k <= more+equal:
			return pivot
		default:
			xs, k = xs[more+equal:], k-more-equal
		}
	}
}

// pivotOf is the median of the first, the middle and the last.
func pivotOf(xs []float32) float32 {
	a, b, c := xs[0], xs[len(xs)/2], xs[len(xs)-1]
	return max(min(a, b), min(max(a, b), c))
}

// split puts numbers greater than the pivot first, then those equal to it, and counts both.
func split(xs []float32, pivot float32) (more, equal int) {
	for i, x := range xs {
		if x > pivot {
			xs[i], xs[more+equal] = xs[more+equal], xs[i]
			xs[more+equal], xs[more] = xs[more], xs[more+equal]
			more++
		} else if x == pivot {
			xs[i], xs[more+equal] = xs[more+equal], xs[i]
			equal++
		}
	}
	return more, equal
}
