package backend

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/distributed"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/compute/dtypes/float16"
	"github.com/gomlx/compute/shapes"
)

// Float32 copies data, row-major, into a new buffer [dims]. The caller finalises it. On a mesh every device has it.
func (e *Engine) Float32(data []float32, dims ...int) (compute.Buffer, error) {
	return e.On(nil).Float32(data, dims...)
}

// Floats is Float32 into a buffer of float32 or bfloat16, to which values are rounded.
func (e *Engine) Floats(dtype dtypes.DType, data []float32, dims ...int) (compute.Buffer, error) {
	return e.On(nil).Floats(dtype, data, dims...)
}

// Int32 copies data, row-major, into a new buffer [dims]. The caller finalises it. On a mesh every device has it.
func (e *Engine) Int32(data []int32, dims ...int) (compute.Buffer, error) {
	return e.On(nil).Int32(data, dims...)
}

// Placement is where on a mesh arrays go.
type Placement struct {
	engine *Engine
	spec   *distributed.ShardingSpec
}

// Float64 copies data, row-major, into a new buffer [dims]. The caller finalises it. On a mesh every device has it.
func (e *Engine) Float64(data []float64, dims ...int) (compute.Buffer, error) {
	return e.On(nil).upload(data, len(data), dtypes.Float64, dims)
}

// On is the placement of arrays that are cut over the engine's mesh; nil: whole on every device.
func (e *Engine) On(spec *distributed.ShardingSpec) Placement { return Placement{e, spec} }

// Float32 is [Engine.Float32] there.
func (p Placement) Float32(data []float32, dims ...int) (compute.Buffer, error) {
	return p.upload(data, len(data), dtypes.Float32, dims)
}

// Int32 is [Engine.Int32] there.
func (p Placement) Int32(data []int32, dims ...int) (compute.Buffer, error) {
	return p.upload(data, len(data), dtypes.Int32, dims)
}

// Floats is [Engine.Floats] there.
func (p Placement) Floats(dtype dtypes.DType, data []float32, dims ...int) (compute.Buffer, error) {
	if dtype != dtypes.BFloat16 {
		return p.Float32(data, dims...)
	}
	return p.upload(roundTo(make([]bfloat16.BFloat16, len(data)), data), len(data), dtype, dims)
}

// Uint8 copies data, row-major, into a new buffer [dims] there. The caller finalises it.
func (p Placement) Uint8(data []uint8, dims ...int) (compute.Buffer, error) {
	return p.upload(data, len(data), dtypes.Uint8, dims)
}

// upload copies a slice of n values into a new buffer.
func (p Placement) upload(flat any, n int, dtype dtypes.DType, dims []int) (b compute.Buffer, err error) {
	defer catchPanic(&err, "copy a buffer")
	e := p.engine
	if err := e.failed.err(); err != nil {
		return nil, err
	}
	shape, err := makeShape(dtype, dims)
	if err != nil {
		return nil, err
	}
	if n != shape.Size() {
		return nil, fmt.Errorf("backend: buffer of dimensions %v: found %d values, want %d", dims, n, shape.Size())
	}
	switch {
	case e.target != nil:
		b, err = e.phantom(p.spec, shape)
	case e.Mesh != nil:
		b, err = e.putShards(p.spec, flat, shape)
	default:
		b, err = e.BufferFromFlatData(0, flat, shape)
	}
	if err != nil {
		return nil, fmt.Errorf("backend %s: copy a buffer %s: %w", e.Name, shape, engineError(err))
	}
	return b, nil
}

func makeShape(dtype dtypes.DType, dims []int) (shapes.Shape, error) {
	if slices.ContainsFunc(dims, func(d int) bool { return d < 0 }) {
		return shapes.Shape{}, fmt.Errorf("backend: buffer of dimensions %v: want 0 or more each", dims)
	}
	return shapes.Make(dtype, dims...), nil
}

// SharedFloat32 makes a zeroed buffer [dims] that programs read and Go writes: the slice is its memory, valid until the
// buffer is finalised. Only engines that want SharedMemory have such buffers.
func (e *Engine) SharedFloat32(dims ...int) (b compute.Buffer, view []float32, err error) {
	defer catchPanic(&err, "share a buffer")
	if !e.Wants.SharedMemory {
		return nil, nil, fmt.Errorf("backend %s: this engine shares no buffers with the host", e.Name)
	}
	shape, err := makeShape(dtypes.Float32, dims)
	if err != nil {
		return nil, nil, err
	}
	b, flat, err := e.NewSharedBuffer(0, shape)
	if err != nil {
		return nil, nil, fmt.Errorf("backend %s: new buffer %s: %w", e.Name, shape, err)
	}
	view = flat.([]float32)
	clear(view) // the memory comes from a pool
	return b, view, nil
}

// Floats reads a buffer of float32, bfloat16 or float16 as float32, row-major. On engines that share float32 memory the
// result is that memory: do not write to it, nor use it after the buffer is finalised. Otherwise it is a copy.
func Floats(b compute.Buffer) (values []float32, err error) {
	defer catchPanic(&err, "read a buffer")
	shape, err := b.Shape()
	if err != nil {
		return nil, fmt.Errorf("backend: read a buffer: %w", err)
	}
	switch shape.DType {
	case dtypes.Float32:
		if !sharesHostMemory(b) {
			return download[float32](b, shape)
		}
		flat, err := b.Data()
		if err != nil {
			return nil, fmt.Errorf("backend: read a buffer %s: %w", shape, err)
		}
		return flat.([]float32), nil
	case dtypes.BFloat16:
		return downloadAs(b, shape, bfloat16.BFloat16.Float32)
	case dtypes.Float16:
		return downloadAs(b, shape, float16.Float16.Float32)
	}
	return nil, fmt.Errorf("backend: read a buffer %s: want float32, bfloat16 or float16", shape)
}

// Ints copies a buffer of int32, row-major.
func Ints(b compute.Buffer) (values []int32, err error) {
	defer catchPanic(&err, "read a buffer")
	shape, err := b.Shape()
	if err != nil {
		return nil, fmt.Errorf("backend: read a buffer: %w", err)
	}
	if shape.DType != dtypes.Int32 {
		return nil, fmt.Errorf("backend: read a buffer %s: want int32", shape)
	}
	return download[int32](b, shape)
}

// sharesHostMemory leaves out xla: its CPU plugin shares memory too, but its outputs may not be finished yet.
func sharesHostMemory(b compute.Buffer) bool {
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

func downloadAs[T any](b compute.Buffer, shape shapes.Shape, float func(T) float32) ([]float32, error) {
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

// FinalizeAll frees buffers and skips nil ones. It ignores errors, since the buffers are gone either way.
func FinalizeAll(buffers ...compute.Buffer) {
	for _, b := range buffers {
		if b != nil {
			_ = b.Finalize()
		}
	}
}
