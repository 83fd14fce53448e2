package grpo

import (
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
)

func shapeInt32(dims ...int) shapes.Shape   { return shapes.Make(dtypes.Int32, dims...) }
func shapeFloat32(dims ...int) shapes.Shape { return shapes.Make(dtypes.Float32, dims...) }
