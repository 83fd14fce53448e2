package rollout

import (
	"fmt"
	"math"
	"slices"
)

// block is the number of neighbouring tokens of the vocabulary in a block.
const block = 64

// row is the output of the model's head for one token to come: logits, and the sums and maxima of their blocks. They
// allow choosing a token without a pass over the vocabulary, except for flat distributions with truncation.
//
// An example with 8 tokens in blocks of 2 and weights exp((logit - greatest)/temperature), here times 4:
//
//	weights  1 1 | 2 4 | 4 2 | 3 1
//	sums      2  |  6  |  6  |  4     total 18
//	maxima    1  |  4  |  4  |  3
//
// The draw 0.6 falls at 0.6·18 = 10.8 of the cumulative sums 2, 8, 14, 18: in the third block, which is the deciding
// one, at the share (10.8-8)/6 = 0.47 of it. Within the block, 0.47·6 = 2.8 is less than the first weight, 4: token 4
// is drawn. With TopK 3, the third greatest maximum is 3, so the three greatest weights are 3 or more: only the last
// three blocks are read, 4, 4 and 3 are kept, and the draw falls at 0.6·11 = 6.6 of 4, 8, 11: token 4 again.
type row struct {
	logits      []float32 // [V]
	sums        []float32 // [blocks] of the weights at temperature
	maxima      []float32 // [blocks] of the logits
	logSumExp   float32   // of the logits, at temperature 1
	temperature float64   // of the sums
	vocabulary  int       // V
}

// choose picks the token for the draw u, in float64, and returns its log-prob at temperature 1. The token is the one of
// the function choose, unless u is within the rounding of the sums, 1e-6, of the boundary between two tokens.
func (x row) choose(s Sampling, u float64) (token int32, logp float32, err error) {
	if err := x.check(); err != nil {
		return 0, 0, err
	}
	top := float64(x.maxima[greatest(x.maxima)])
	at, share, ok := x.decidingBlock(s, u)
	z := x.block(at)
	switch {
	case s.Temperature == 0:
		token = greatest(z)
	case ok:
		alone := row{logits: z, maxima: x.maxima[at : at+1]}
		token = alone.inverse(s, top, float32(math.Inf(-1)), share)
	default:
		at, z = 0, x.logits
		token = x.inverse(s, top, x.threshold(s, top), u)
	}
	return int32(at*block) + token, float32(float64(z[token]) - float64(x.logSumExp)), nil
}

// decidingBlock returns the block that holds the token for a draw, and the draw's place in it as a share of the block's
// sum; false if the sums do not decide it, because tokens are dropped or the sums have another temperature.
func (x row) decidingBlock(s Sampling, u float64) (at int, share float64, ok bool) {
	switch {
	case s.Temperature == 0:
		return int(greatest(x.maxima)), 0, true
	case s.truncates(x.vocabulary) || s.Temperature != x.temperature:
		return 0, 0, false
	}
	total, sum := x.total(s, 0), 0.0
	for b, weight := range x.sums {
		if weight > 0 {
			at, share = b, (u*total-sum)/float64(weight)
		}
		if sum += float64(weight); sum > u*total {
			break
		}
	}
	return at, min(share, math.Nextafter(1, 0)), true
}

// greatest returns the index of the first greatest number.
func greatest(xs []float32) (best int32) {
	for i, x := range xs {
		if x > xs[best] {
			best = int32(i)
		}
	}
	return best
}

// check refuses logits that are not numbers: then their sum is not a number either.
func (x row) check() error {
	if s := float64(x.logSumExp); !math.IsNaN(s) && !math.IsInf(s, 0) {
		return nil
	}
	for i, z := range x.logits {
		if z != z || math.IsInf(float64(z), 1) {
			return fmt.Errorf("the logit of token %d is %v: the model's weights are broken", i, z)
		}
	}
	return fmt.Errorf("the sum of the probabilities is %v: the model's weights are broken", x.logSumExp)
}

// block returns the logits of block b; the last one may be short.
func (x row) block(b int) []float32 {
	return x.logits[b*block : min((b+1)*block, len(x.logits))]
}

// inverse returns the first token, in the order of ids, whose cumulative probability exceeds u, among those whose
// logits are least or more. It reads only blocks that have one.
func (x row) inverse(s Sampling, top float64, least float32, u float64) int32 {
	var ids []int32
	var weights []float64
	total := 0.0
	x.each(least, func(id int32, z float32) {
		w := s.weight(z, top)
		ids, weights, total = append(ids, id), append(weights, w), total+w
	})
	sum, last := 0.0, 0
	for i, w := range weights {
		if sum += w; sum > u*total {
			return ids[i]
		}
		if w > 0 {
			last = i
		}
	}
	return ids[last] // u is close to 1 and rounding cut the sum short
}

// each calls f for the tokens whose logits are least or more.
func (x row) each(least float32, f func(id int32, z float32)) {
	for b, most := range x.maxima {
		if !(most >= least) {
			continue
		}
		for i, z := range x.block(b) {
			if z >= least {
				f(int32(b*block+i), z)
			}
		}
	}
}

// atLeast returns the logits of least or more.
func (x row) atLeast(least float32) (out []float32) {
	x.each(least, func(_ int32, z float32) { out = append(out, z) })
	return out
}

// threshold is the least logit that the rules keep.
func (x row) threshold(s Sampling, top float64) float32 {
	least := s.minPThreshold(top)
	switch {
	case s.usesTopK(x.vocabulary):
		return max(least, s.topKThreshold(x.likeliest(s.TopK), top))
	case s.usesTopP():
		return max(least, x.topPThreshold(s, top))
	}
	return least
}

// topKThreshold returns the least logit that TopK keeps, and TopP after it, of logits that include the TopK greatest.
// It reorders them.
func (s Sampling) topKThreshold(likely []float32, top float64) float32 {
	kth := kthGreatest(likely, s.TopK)
	if !s.usesTopP() {
		return kth
	}
	likely = slices.DeleteFunc(likely, func(z float32) bool { return z < kth })
	return s.edge(likely, top, s.TopP*s.sum(likely, top))
}

// likeliest returns logits that include the k greatest: the k-th greatest logit is at least the k-th greatest maximum.
func (x row) likeliest(k int) []float32 {
	least := float32(math.Inf(-1))
	if k <= len(x.maxima) {
		least = kthGreatest(slices.Clone(x.maxima), k)
	}
	return x.atLeast(least)
}

// topPThreshold reads more and more blocks, those with the greatest maxima first, until the logits above the maxima of
// all other blocks hold the share.
func (x row) topPThreshold(s Sampling, top float64) float32 {
	target := s.TopP * x.total(s, top)
	for k := 8; k < len(x.maxima); k *= 4 {
		if likely := x.atLeast(kthGreatest(slices.Clone(x.maxima), k)); s.sum(likely, top) >= target {
			return s.edge(likely, top, target)
		}
	}
	return s.edge(slices.Clone(x.logits), top, target)
}

// total is the sum of all weights.
func (x row) total(s Sampling, top float64) (sum float64) {
	if s.Temperature != x.temperature {
		return s.sum(x.logits, top)
	}
	for _, weight := range x.sums {
		sum += float64(weight)
	}
	return sum
}

// edge returns the least of the fewest greatest logits whose weights reach target. It does not sort: it splits at a
// pivot and continues with the side that has the edge. It reorders the logits.
func (s Sampling) edge(logits []float32, top, target float64) float32 {
	for {
		if len(logits) == 1 {
			return logits[0]
		}
		pivot := pivotOf(logits)
		more, equal := split(logits, pivot)
		above, at := s.sum(logits[:more], top), float64(equal)*s.weight(pivot, top)
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

// kthGreatest reorders the numbers.
func kthGreatest(xs []float32, k int) float32 {
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

// split moves the numbers above the pivot to the front, those equal to it behind them, and counts both.
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
