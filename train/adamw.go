package train

import (
	"github.com/gomlx/compute/dtypes"

	"github.com/posttrain/posttrain/internal/adamw"
)

// AdamW is the rule of one update (Loshchilov and Hutter 2019), after clipping by the global norm as PyTorch does it.
// Two implementations carry it out, one over host memory ([adamw.State]) and one as a graph ([graphStore]).
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

// Numbers are those of the rule.
func (a AdamW) Numbers() adamw.Rule {
	return adamw.Rule{Beta1: a.Beta1, Beta2: a.Beta2, Epsilon: a.Epsilon, WeightDecay: a.WeightDecay, MaxNorm: a.MaxNorm}
}
