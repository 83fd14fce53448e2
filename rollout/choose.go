package rollout

import (
	"math"

	"github.com/posttrain/posttrain/internal/float"
)

// draw returns the uniform number in [0, 1) that decides a request's token at index. It depends on nothing else, so
// there is no generator whose state would have to be kept.
func draw(seed uint64, index int) float64 {
	return float64(Mix(Mix(seed)+uint64(index))>>11) / (1 << 53)
}

// Mix is one step of splitmix64 (Steele, Lea, Flood, 2014): neighbouring inputs give unrelated outputs.
func Mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// truncates says whether the rules may drop tokens of a vocabulary of v.
func (s Sampling) truncates(v int) bool {
	return s.usesTopK(v) || s.usesTopP() || s.MinP > 0
}

func (s Sampling) usesTopK(v int) bool { return s.TopK > 0 && s.TopK < v }

func (s Sampling) usesTopP() bool { return s.TopP > 0 && s.TopP < 1 }

// weight is a token's probability relative to the likeliest token's, whose logit is top.
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
