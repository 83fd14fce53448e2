package train

import (
	"github.com/gomlx/compute/dtypes"

	"github.com/posttrain/posttrain/internal/adamw"
)

// AdamW is one update of the weights (Loshchilov and Hutter 2019), after clipping by the global norm as PyTorch does
// it. Two implementations carry it out, one over host memory ([adamw.State]) and one as a graph ([graphStore]).
type AdamW struct {
	adamw.Options
	HalfMoments bool // moments are kept in bfloat16
}

func (a AdamW) momentType() dtypes.DType {
	if a.HalfMoments {
		return dtypes.BFloat16
	}
	return dtypes.Float32
}
