package backend

import (
	"fmt"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/compute/dtypes/float16"
	"github.com/gomlx/compute/shapes"
)

// Float32 copies data, row-major, into a new buffer [dims]. The caller finalises it.
func (e *Engine) Float32(data []float32, dims ...int) (compute.Buffer, error) {
	return e.upload(data, len(data), shapes.Shape{DType: dtypes.Float32, Dimensions: dims})
}

// Int32 copies data, row-major, into a new buffer [dims]. The caller finalises it.
func (e *Engine) Int32(data []int32, dims ...int) (compute.Buffer, error) {
	return e.upload(data, len(data), shapes.Shape{DType: dtypes.Int32, Dimensions: dims})
}

// upload copies a flat slice of n values into a new buffer.
func (e *Engine) upload(flat any, n int, shape shapes.Shape) (b compute.Buffer, err error) {
	defer recovered(&err, "copy a buffer")
	shape, err = checkedShape(shape, n)
	if err != nil {
		return nil, err
	}
	b, err = e.BufferFromFlatData(0, flat, shape)
	if err != nil {
		return nil, fmt.Errorf("backend %s: copy a buffer %s: %w", e.Name, shape, err)
	}
	return b, nil
}

// checkedShape refuses dimensions that are negative or do not hold n values.
func checkedShape(s shapes.Shape, n int) (shapes.Shape, error) {
	size := 1
	for _, d := range s.Dimensions {
		if d < 0 {
			return s, fmt.Errorf("backend: buffer of dimensions %v: want none negative", s.Dimensions)
		}
		size *= d
	}
	if size != n {
		return s, fmt.Errorf("backend: buffer of dimensions %v holds %d values, %d given", s.Dimensions, size, n)
	}
	return shapes.Make(s.DType, s.Dimensions...), nil
}

// SharedFloat32 makes a zeroed buffer [dims] that programs read and Go writes: the slice is its memory, valid until the
// buffer is finalised. Only engines that want HostUpdate have such buffers.
func (e *Engine) SharedFloat32(dims ...int) (b compute.Buffer, view []float32, err error) {
	defer recovered(&err, "share a buffer")
	if !e.Wants.HostUpdate {
		return nil, nil, fmt.Errorf("backend %s: no buffers are shared with this engine", e.Name)
	}
	size := 1
	for _, d := range dims {
		size *= max(d, 0)
	}
	shape, err := checkedShape(shapes.Shape{DType: dtypes.Float32, Dimensions: dims}, size)
	if err != nil {
		return nil, nil, err
	}
	b, flat, err := e.NewSharedBuffer(0, shape)
	if err != nil {
		return nil, nil, fmt.Errorf("backend %s: new buffer %s: %w", e.Name, shape, err)
	}
	view = flat.([]float32)
	clear(view) // memory comes from a pool
	return b, view, nil
}

// Floats gives the values of a buffer, row-major, as float32: the memory itself where the engine shares it (valid until
// the buffer is finalised, and written to by nobody else), else a copy. bfloat16 and float16 are converted.
func Floats(b compute.Buffer) (values []float32, err error) {
	defer recovered(&err, "read a buffer")
	shape, err := b.Shape()
	if err != nil {
		return nil, fmt.Errorf("backend: read a buffer: %w", err)
	}
	switch shape.DType {
	case dtypes.Float32:
		return float32s(b, shape)
	case dtypes.BFloat16:
		return converted(b, shape, bfloat16.BFloat16.Float32)
	case dtypes.Float16:
		return converted(b, shape, float16.Float16.Float32)
	}
	return nil, fmt.Errorf("backend: read a buffer %s: want float32, bfloat16 or float16", shape)
}

// float32s gives the shared memory of a buffer, or a copy.
func float32s(b compute.Buffer, shape shapes.Shape) ([]float32, error) {
	if hostMemory(b) {
		flat, err := b.Data()
		if err != nil {
			return nil, fmt.Errorf("backend: read a buffer %s: %w", shape, err)
		}
		return flat.([]float32), nil
	}
	return download[float32](b, shape)
}

// hostMemory: xla's CPU plugin shares memory too, but its outputs may still be on the way.
func hostMemory(b compute.Buffer) bool {
	owner := b.Backend()
	return owner.HasSharedBuffers() && owner.Name() != "xla"
}

func download[T any](b compute.Buffer, shape shapes.Shape) ([]T, error) {
	values := make([]T, shape.Size())
	if err := b.ToFlatData(values); err != nil {
		return nil, fmt.Errorf("backend: read a buffer %s: %w", shape, err)
	}
	return values, nil
}

func converted[T any](b compute.Buffer, shape shapes.Shape, float func(T) float32) ([]float32, error) {
	raw, err := download[T](b, shape)
	if err != nil {
		return nil, err
	}
	values := make([]float32, len(raw))
	for i, v := range raw {
		values[i] = float(v)
	}
	return values, nil
}

// FinalizeAll frees buffers; nil ones are skipped. Errors are of no use to the caller: the buffers are gone either way.
func FinalizeAll(buffers ...compute.Buffer) {
	for _, b := range buffers {
		if b != nil {
			_ = b.Finalize()
		}
	}
}
