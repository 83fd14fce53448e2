package rollout

import (
	"cmp"
	"slices"
)

// Adjust changes logits before a token is drawn, in this order, as vLLM does. Log-probs stay the model's own.
type Adjust struct {
	Bias map[int32]float64 // added to the logits of these tokens
	// Repetition divides the logits above 0 of the tokens of prompt and answer, and multiplies others; 0 or 1: none.
	Repetition float64
	Frequency  float64 // subtracted for each time that the answer has a token
	Presence   float64 // subtracted once where the answer has it
}

// IsNone says that logits stay as they are.
func (a *Adjust) IsNone() bool {
	return len(a.Bias) == 0 && (a.Repetition == 0 || a.Repetition == 1) && a.Frequency == 0 && a.Presence == 0
}

// apply changes logits.
func (a *Adjust) apply(logits []float32, prompt, drawn []int32) {
	for token, bias := range a.Bias {
		logits[token] += float32(bias)
	}
	counts := map[int32]int{}
	for _, token := range prompt {
		counts[token] = 0
	}
	for _, token := range drawn {
		counts[token]++
	}
	for token, n := range counts {
		logits[token] = a.penalize(logits[token], n)
	}
}

// penalize changes the logit of a token that comes n times in the answer.
func (a *Adjust) penalize(logit float32, n int) float32 {
	z, r := float64(logit), cmp.Or(a.Repetition, 1)
	if z > 0 {
		r = 1 / r
	}
	return float32(z*r - a.Frequency*float64(n) - a.Presence*float64(min(n, 1)))
}

// adjusted is a row with changed logits, for choose.
func (x row) adjusted(a *Adjust, prompt, drawn []int32) row {
	x.logits, x.temperature, x.maxima = slices.Clone(x.logits), -1, slices.Clone(x.maxima) // of which the sums are not
	a.apply(x.logits, prompt, drawn)
	for b := range x.maxima {
		z := x.block(b)
		x.maxima[b] = z[greatest(z)]
	}
	return x
}

// Likely is a token with its log-prob at temperature 1.
type Likely struct {
	Token int32
	Logp  float32
}

// top are the k likeliest tokens, the likeliest first.
func (x row) top(k int) (top []Likely) {
	k = min(k, len(x.logits))
	x.each(kthGreatest(slices.Clone(x.logits), k), func(id int32, z float32) {
		top = append(top, Likely{id, float32(float64(z) - float64(x.logSumExp))})
	})
	slices.SortStableFunc(top, func(a, b Likely) int { return cmp.Compare(b.Logp, a.Logp) })
	return top[:k]
}

// choose draws the next token from a row.
func (a *answer) choose(x row) (token int32, logp float32, err error) {
	r := &a.request
	if err := x.check(); err != nil {
		return 0, 0, err
	}
	if a.top = nil; r.Top > 0 {
		a.top = x.top(r.Top)
	}
	if r.Adjust.IsNone() {
		return x.choose(r.Sampling, a.draw())
	}
	token, _, err = x.adjusted(&r.Adjust, r.Prompt, a.done.Tokens).choose(r.Sampling, a.draw())
	return token, float32(float64(x.logits[token]) - float64(x.logSumExp)), err
}
