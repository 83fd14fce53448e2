package rollout

import (
	"fmt"
	"math"
	"slices"
)

// rule is how a token is chosen: [Request] says what the numbers mean. Each of the three that cut off comes down to a
// least logit, so that together they keep the tokens from some logit on.
type rule struct {
	temperature float64
	topK        int
	topP, minP  float64
}

func ruleOf(r Request) rule { return rule{r.Temperature, r.TopK, r.TopP, r.MinP} }

// cutsOff tells whether unlikely tokens are cut off from a vocabulary of v.
func (r rule) cutsOff(v int) bool {
	return r.topK > 0 && r.topK < v || r.nucleus() || r.minP > 0
}

func (r rule) nucleus() bool { return r.topP > 0 && r.topP < 1 }

// weight is a token's probability as a multiple of the likeliest's, whose logit is top.
func (r rule) weight(z float32, top float64) float64 {
	return math.Exp((float64(z) - top) / r.temperature)
}

// choose picks the token of a row of logits [V] for a draw, in float64, and gives its log-prob at temperature 1. It is
// the plain way, with a sort and full passes; [row.choose] takes the same tokens and is tested against it.
func choose(logits []float32, r rule, u float64) (token int32, logp float32, err error) {
	best, total, err := partition(logits)
	if err != nil {
		return 0, 0, err
	}
	if token = int32(best); r.temperature > 0 {
		token = r.inverse(logits, float64(logits[best]), r.least(logits, float64(logits[best])), u)
	}
	return token, float32(float64(logits[token]-logits[best]) - math.Log(total)), nil
}

// partition finds the likeliest token, and the sum of exp(logit - its logit).
func partition(logits []float32) (best int, total float64, err error) {
	for i, z := range logits {
		if z != z || math.IsInf(float64(z), 1) {
			return 0, 0, broken(i, z)
		}
		if z > logits[best] {
			best = i
		}
	}
	for _, z := range logits {
		total += math.Exp(float64(z) - float64(logits[best]))
	}
	return best, total, nil
}

func broken(token int, logit float32) error {
	return fmt.Errorf("the logit of token %d is %v: the model's weights are broken", token, logit)
}

// least is the least logit that is kept.
func (r rule) least(logits []float32, top float64) float32 {
	least := float32(math.Inf(-1))
	if !r.cutsOff(len(logits)) {
		return least
	}
	sorted := slices.Clone(logits)
	slices.SortFunc(sorted, func(a, b float32) int { return descending(a, b) })
	if r.topK > 0 && r.topK < len(sorted) {
		least = sorted[r.topK-1]
		sorted = sorted[:len(sorted)-below(sorted, least)]
	}
	if r.nucleus() {
		least = max(least, r.nucleusOf(sorted, top))
	}
	return max(least, r.leastByRatio(top))
}

func descending(a, b float32) int {
	switch {
	case a > b:
		return -1
	case a < b:
		return 1
	}
	return 0
}

// below counts the logits that are less than one.
func below(logits []float32, least float32) (n int) {
	for _, z := range logits {
		if z < least {
			n++
		}
	}
	return n
}

// nucleusOf is the least of the likeliest of some sorted logits, as few as reach the share topP of their sum.
func (r rule) nucleusOf(sorted []float32, top float64) float32 {
	total, sum := 0.0, 0.0
	for _, z := range slices.Backward(sorted) {
		total += r.weight(z, top)
	}
	for _, z := range sorted {
		if sum += r.weight(z, top); sum >= r.topP*total {
			return z
		}
	}
	return sorted[len(sorted)-1]
}

// leastByRatio is the least logit that minP keeps, as a float32: a logit is kept where it is that or more.
func (r rule) leastByRatio(top float64) float32 {
	if r.minP == 0 {
		return float32(math.Inf(-1))
	}
	exact := top + r.temperature*math.Log(r.minP)
	least := float32(exact)
	if float64(least) < exact {
		least = math.Nextafter32(least, float32(math.Inf(1)))
	}
	return min(least, float32(top))
}

// inverse is the first token whose cumulative probability exceeds u, in the order of ids, of those whose logits are
// least or more.
func (r rule) inverse(logits []float32, top float64, least float32, u float64) int32 {
	total := 0.0
	for _, z := range logits {
		if z >= least {
			total += r.weight(z, top)
		}
	}
	sum, last := 0.0, 0
	for i, z := range logits {
		if z < least {
			continue
		}
		p := r.weight(z, top)
		if sum += p; sum > u*total {
			return int32(i)
		}
		if p > 0 {
			last = i
		}
	}
	return int32(last) // u next to 1, and a sum that rounding cut short
}
