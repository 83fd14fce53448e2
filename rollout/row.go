package rollout

import (
	"fmt"
	"math"
	"slices"
)

// block is how many neighbouring tokens of the vocabulary one block holds.
const block = 64

// row is the head's output for one token to come: the logits, and what saves looking at most of them. Tokens are chosen
// from it without a pass over the vocabulary, but for flat distributions that are cut off.
type row struct {
	logits      []float32 // [V]; nil: only one block of them is at hand
	only        []float32 // that block, as [row.decisive] asks for it
	sums        []float32 // [blocks] of exp((logit - the likeliest's) / temperature)
	maxima      []float32 // [blocks] of the logits
	logSumExp   float32   // of the logits, at temperature 1
	temperature float64   // of the sums
	vocabulary  int       // V
}

// choose picks the token for a draw, in float64, and gives its log-prob at temperature 1. It is the token that the
// function choose takes, unless the draw falls on the edge of two tokens as near as the rounding of the sums, 1e-6.
func (x row) choose(r rule, u float64) (token int32, logp float32, err error) {
	if err := x.sound(); err != nil {
		return 0, 0, err
	}
	top := float64(x.maxima[x.likeliestBlock()])
	at, shareOfBlock, one := x.decisive(r, u)
	z := x.block(at)
	switch {
	case r.temperature == 0:
		token = greatest(z)
	case one:
		token = r.inverse(z, top, float32(math.Inf(-1)), shareOfBlock)
	case r.cutsOff(x.vocabulary):
		at, z = 0, x.logits
		token = x.inverseFrom(r, top, x.least(r, top), u)
	default:
		at, z = 0, x.logits
		token = r.inverse(z, top, float32(math.Inf(-1)), u)
	}
	return int32(at*block) + token, float32(float64(z[token]) - float64(x.logSumExp)), nil
}

// decisive is the block whose logits alone decide a token, and where a draw in it falls as a share of the block; false
// where it takes more than one.
func (x row) decisive(r rule, u float64) (at int, share float64, one bool) {
	switch {
	case r.temperature == 0:
		return x.likeliestBlock(), 0, true
	case r.cutsOff(x.vocabulary) || r.temperature != x.temperature:
		return 0, 0, false
	}
	total := 0.0
	for _, s := range x.sums {
		total += float64(s)
	}
	sum := 0.0
	for b, s := range x.sums {
		if s > 0 {
			at, share = b, (u*total-sum)/float64(s)
		}
		if sum += float64(s); sum > u*total {
			break
		}
	}
	return at, min(share, math.Nextafter(1, 0)), true
}

// likeliestBlock is the first block that has the greatest logit.
func (x row) likeliestBlock() int { return int(greatest(x.maxima)) }

// greatest is the place of the first of the greatest of some numbers.
func greatest(xs []float32) (best int32) {
	for i, x := range xs {
		if x > xs[best] {
			best = int32(i)
		}
	}
	return best
}

// sound tells whether the logits are numbers: where one is not, their sum is none either.
func (x row) sound() error {
	if s := float64(x.logSumExp); !math.IsNaN(s) && !math.IsInf(s, 0) {
		return nil
	}
	if _, _, err := partition(x.logits); err != nil {
		return err
	}
	return fmt.Errorf("the sum of the probabilities is %v: the model's weights are broken", x.logSumExp)
}

// block is the logits of block b; the last one may be short.
func (x row) block(b int) []float32 {
	if x.logits == nil {
		return x.only
	}
	return x.logits[b*block : min((b+1)*block, len(x.logits))]
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
	if r.topK > 0 && r.topK < x.vocabulary {
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
