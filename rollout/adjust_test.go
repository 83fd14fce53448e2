package rollout

import (
	"math"
	"slices"
	"testing"
)

// TestAdjust: the logits of vLLM's rules by hand: bias first, then repetition, frequency and presence.
func TestAdjust(t *testing.T) {
	a := Adjust{Bias: map[int32]float64{0: 1, 4: -100}, Repetition: 2, Frequency: 0.5, Presence: 0.25}
	z := []float32{2, -1, 0.5, 3, 1}
	a.apply(z, []int32{1, 0}, []int32{3, 3})
	if want := []float32{1.5, -2, 0.5, 0.25, -99}; !slices.Equal(z, want) {
		t.Errorf("%v, want %v", z, want)
	}
	for _, none := range []Adjust{{}, {Repetition: 1, Bias: map[int32]float64{}}} {
		if !none.IsNone() || a.IsNone() {
			t.Errorf("%+v", none)
		}
	}
}

// TestAdjustedDraws: a changed row draws as one that has these logits, keeps the log-probs of its own, and names the
// likeliest tokens of its own.
func TestAdjustedDraws(t *testing.T) {
	const v = 300
	logits, sum := make([]float32, v), 0.0
	for i := range logits {
		logits[i] = float32(4 * math.Sin(float64(i*i)))
		sum += math.Exp(float64(logits[i]))
	}
	rowOf := func(z []float32) row {
		x := row{logits: z, logSumExp: float32(math.Log(sum)), temperature: -1, vocabulary: v}
		for at := 0; at < v; at += block {
			x.maxima, x.sums = append(x.maxima, slices.Max(z[at:min(at+block, v)])), append(x.sums, 0)
		}
		return x
	}
	adjust := Adjust{Bias: map[int32]float64{7: 9}, Presence: 1.5, Repetition: 1.3}
	drawn := []int32{7, 7, 250}
	changed := slices.Clone(logits)
	adjust.apply(changed, []int32{1}, drawn)
	for i, s := range []Sampling{{}, {Temperature: 1}, {Temperature: 0.7, TopK: 9}, {Temperature: 2, TopP: 0.8},
		{Temperature: 1, MinP: 0.1}} {
		for seed := range uint64(20) {
			a := &answer{request: Request{Sampling: s, Seed: seed, Prompt: []int32{1}, Adjust: adjust, Top: 3},
				done: &Completion{Tokens: drawn}}
			token, logp, err := a.choose(rowOf(logits))
			want, _, err2 := rowOf(changed).choose(s, a.draw())
			if err != nil || err2 != nil || token != want || logp != logits[token]-rowOf(logits).logSumExp {
				t.Errorf("%d, seed %d: token %d with %v, %v; want %d", i, seed, token, logp, err, want)
			}
			order := slices.Clone(logits)
			slices.Sort(order)
			for k, top := range a.top {
				z := order[v-1-k]
				if logits[top.Token] != z || top.Logp != z-rowOf(logits).logSumExp || len(a.top) != 3 {
					t.Errorf("likeliest %d: %+v, want a logit of %v", k, top, z)
				}
			}
		}
	}
}
