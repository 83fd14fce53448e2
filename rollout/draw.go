package rollout

import (
	"fmt"
	"math"
)

// draw is the uniform number in [0, 1) that decides token index of a request. Counter-based: no stream to keep.
func draw(seed uint64, index int) float64 {
	return float64(mix(mix(seed)+uint64(index))>>11) / (1 << 53)
}

// mix is the finaliser of splitmix64 (Steele, Lea, Flood, 2014) on the next state: neighbours become strangers.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// choose picks the token of a row of logits [V] for a draw, in float64, and gives its log-prob at temperature 1.
func choose(logits []float32, temperature, u float64) (token int32, logp float32, err error) {
	best, total, err := partition(logits)
	if err != nil {
		return 0, 0, err
	}
	if token = int32(best); temperature > 0 {
		token = inverse(logits, float64(logits[best]), temperature, u)
	}
	return token, float32(float64(logits[token]-logits[best]) - math.Log(total)), nil
}

// partition finds the likeliest token, and the sum of exp(logit - its logit).
func partition(logits []float32) (best int, total float64, err error) {
	for i, z := range logits {
		if z != z || math.IsInf(float64(z), 1) {
			return 0, 0, fmt.Errorf("the logit of token %d is %v: the model's weights are broken", i, z)
		}
		if z > logits[best] {
			best = i
		}
	}
	top := float64(logits[best])
	for _, z := range logits {
		total += math.Exp(float64(z) - top)
	}
	return best, total, nil
}

// inverse is the first token whose cumulative probability exceeds u, in the order of ids.
func inverse(logits []float32, top, temperature, u float64) int32 {
	total := 0.0
	for _, z := range logits {
		total += math.Exp((float64(z) - top) / temperature)
	}
	sum, last := 0.0, 0
	for i, z := range logits {
		p := math.Exp((float64(z) - top) / temperature)
		if sum += p; sum > u*total {
			return int32(i)
		}
		if p > 0 {
			last = i
		}
	}
	return int32(last) // u next to 1, and a sum that rounding cut short
}
