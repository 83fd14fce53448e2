package backend

import (
	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/dtypes/bfloat16"
)

// Uploader fills buffers one after the other, each through the same host memory.
type Uploader struct {
	largest int
	floats  []float32
	halves  []bfloat16.BFloat16
}

// NewUploader makes an uploader of buffers of at most this many elements.
func NewUploader(largest int) *Uploader { return &Uploader{largest: largest} }

// Floats makes a buffer [dims] of float32 or bfloat16 where at says, of the values that read writes: into the buffer
// itself where the engine shares memory with the host. The caller finalises it.
func (u *Uploader) Floats(at Placement, dtype dtypes.DType, read func(to []float32) error, dims ...int) (compute.Buffer,
	error) {
	if at.engine.Wants.SharedMemory && dtype == dtypes.Float32 {
		b, _, err := at.engine.SharedFrom(read, dims...)
		return b, err
	}
	shape, err := makeShape(dtype, dims)
	if err != nil {
		return nil, err
	}
	if at.engine.target != nil {
		return at.engine.phantom(at.spec, shape)
	}
	u.floats = grow(u.floats, u.largest)
	values := u.floats[:shape.Size()]
	if err := read(values); err != nil {
		return nil, err
	}
	if dtype != dtypes.BFloat16 {
		return at.Float32(values, dims...)
	}
	u.halves = grow(u.halves, u.largest)
	return at.upload(roundTo(u.halves[:len(values)], values), len(values), dtype, dims)
}

// SharedFrom is SharedFloat32 of the values that read writes.
func (e *Engine) SharedFrom(read func(to []float32) error, dims ...int) (compute.Buffer, []float32, error) {
	b, view, err := e.SharedFloat32(dims...)
	if err == nil {
		err = read(view)
	}
	if err != nil {
		FinalizeAll(b)
		return nil, nil, err
	}
	return b, view, nil
}

// grow gives memory for n elements at the first use.
func grow[T any](memory []T, n int) []T {
	if memory == nil {
		return make([]T, n)
	}
	return memory
}

func roundTo(to []bfloat16.BFloat16, values []float32) []bfloat16.BFloat16 {
	for i, x := range values {
		to[i] = bfloat16.FromFloat32(x)
	}
	return to
}
