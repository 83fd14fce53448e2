package rollout

import (
	"fmt"
	"math"

	"github.com/posttrain/posttrain/internal/float"
)

// draw returns the uniform number in [0, 1) that decides a request's token at index. It depends on nothing else, so
// there is no generator whose state would have to be kept.
func draw(seed uint64, index int) float64 {
	return float64(mix(mix(seed)+uint64(index))>>11) / (1 << 53)
}

// mix is one step of splitmix64 (Steele, Lea, Flood, 2014): neighbouring inputs give unrelated outputs.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// softmax returns the likeliest token and the sum of exp(logit - its logit).
func softmax(logits []float32) (best int, total float64, err error) {
	for i, z := range logits {
		if z != z || math.IsInf(float64(z), 1) {
			return 0, 0, fmt.Errorf("the logit of token %d is %v: the model's weights are broken", i, z)
		}
		if z > logits[best] {
			best = i
		}
	}
	for _, z := range logits {
		total += float.Exp(float64(z) - float64(logits[best]))
	}
	return best, total, nil
}

// truncates says whether the rules may drop tokens of a vocabulary of v.
func (s Sampling) truncates(v int) bool {
	return s.usesTopK(v) || s.usesTopP() || s.MinP > 0
}

func (s Sampling) usesTopK(v int) bool { return s.TopK > 0 && s.TopK < v }

func (s Sampling) usesTopP() bool { return s.TopP > 0 && s.TopP < 1 }

// weight is a token's probability relative to that of the likeliest token, whose logit is top.
func (s *Sampling) weight(z float32, top float64) float64 {
	return float.Exp((float64(z) - top) / s.Temperature)
}

// sum adds the weights of logits.
func (s *Sampling) sum(logits []float32, top float64) (sum float64) {
	for _, z := range logits {
		sum += s.weight(z, top)
	}
	return sum
}

// minPThreshold returns the least float32 logit that MinP keeps.
func (s Sampling) minPThreshold(top float64) float32 {
	if s.MinP == 0 {
		return float32(math.Inf(-1))
	}
	exact := top + s.Temperature*math.Log(s.MinP)
	least := float32(exact)
	if float64(least) < exact {
		least = math.Nextafter32(least, float32(math.Inf(1)))
	}
	return min(least, float32(top))
}

// inverse returns the first token, in the order of ids, whose cumulative probability exceeds u, among those whose
// logits are least or more.
func (s Sampling) inverse(logits []float32, top float64, least float32, u float64) int32 {
	total := 0.0
	for _, z := range logits {
		if z >= least {
			total += s.weight(z, top)
		}
	}
	sum, last := 0.0, 0
	for i, z := range logits {
		if z < least {
			continue
		}
		p := s.weight(z, top)
		if sum += p; sum > u*total {
			return int32(i)
		}
		if p > 0 {
			last = i
		}
	}
	return int32(last) // u is close to 1 and rounding cut the sum short
}
