package train

import (
	"math"

	"github.com/gomlx/compute/dtypes"
)

// AdamW is the rule of one update (Loshchilov and Hutter 2019), after clipping by the global norm as PyTorch does it.
// Two implementations carry it out, one over host memory ([hostStore]) and one as a graph ([graphStore]).
type AdamW struct {
	Beta1, Beta2, Epsilon float64
	WeightDecay           float64
	MaxNorm               float64 // 0: no clipping
	HalfMoments           bool    // moments are kept in bfloat16
}

func (a AdamW) momentType() dtypes.DType {
	if a.HalfMoments {
		return dtypes.BFloat16
	}
	return dtypes.Float32
}

// factors are the numbers of update t = 1, 2, … that both implementations use.
type factors struct {
	rate  float64 // learning rate
	decay float64 // what weights are multiplied with first
	step  float64 // rate / (1 - beta1^t)
	root  float64 // 1 / sqrt(1 - beta2^t)
}

func (a AdamW) at(t int, rate float64) factors {
	return factors{
		rate:  rate,
		decay: 1 - rate*a.WeightDecay,
		step:  rate / (1 - math.Pow(a.Beta1, float64(t))),
		root:  1 / math.Sqrt(1-math.Pow(a.Beta2, float64(t))),
	}
}

// clip is what gradients of this norm are multiplied with.
func (a AdamW) clip(norm float64) float64 {
	if a.MaxNorm <= 0 {
		return 1
	}
	return math.Min(1, a.MaxNorm/(norm+1e-6))
}
