package backend

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/distributed"
	"github.com/gomlx/compute/shapes"
)

// Mesh says on how many devices of the machine programs run: the rows of a batch are cut over them (data parallelism).
type Mesh struct {
	Data  int   // 0 is 1
	Shard Shard // what else is cut over the devices
}

// Shard says what of a model that is trained is cut over the devices of a mesh, beside rows.
type Shard string

const (
	ShardNone    Shard = "none"    // the same as ""
	ShardMoments Shard = "moments" // gradients, float32 weights and moments too (ZeRO-2)
)

// DataAxis is the name of the only axis of [Engine.Mesh].
const DataAxis = "data"

// mostVirtual is the most devices that a CPU is cut into: each costs threads.
const mostVirtual = 64

// Devices is the number of devices of the mesh.
func (m Mesh) Devices() int { return max(1, m.Data) }

// OpenMesh is [Open], or [OpenDevice] for the spec device:CHIP.
//
// With more than one device, programs run on all devices of a mesh at once: arrays are cut over it, or whole on each
// device, and XLA's partitioner cuts the program. Only xla can. On a CPU the devices are shares of the processor, for
// tests and rehearsals.
func OpenMesh(spec string, m Mesh) (e *Engine, err error) {
	n := m.Devices()
	name, arg, _ := strings.Cut(spec, ":")
	if name == "device" {
		return OpenDevice(arg, m.Shard)
	}
	if n == 1 {
		return Open(spec)
	}
	defer catchPanic(&err, "open "+spec)
	if name != "xla" {
		return nil, fmt.Errorf("backend %q: engine.devices %d: only xla computes on several devices: want "+
			"--backend xla or one device", spec, n)
	}
	if e, err = openXLA(arg, n); err != nil {
		return nil, err
	}
	e.rows = false // for products on one CPU; XLA would gather activations of the whole batch for weight gradients
	e.Mesh, err = distributed.NewDeviceMesh([]int{n}, []string{DataAxis})
	e.failed, e.Shard = &failure{}, m.Shard
	e.Wants.Tokens *= n
	return e, err
}

// checkDevices refuses more devices than the machine has.
func checkDevices(have, want int) error {
	if have < want {
		return fmt.Errorf("engine.devices %d: the plugin sees %d: want fewer devices", want, have)
	}
	return nil
}

// ErrDevices is the cause of every error behind the failure of a program on several devices. The other devices may wait
// for the one that failed, and XLA's next program for them, without end. So nothing more runs: the process should end.
var ErrDevices = errors.New("other devices may wait for it without end: nothing more runs in this process")

// failure is the first failure of a program on several devices.
type failure struct{ first atomic.Pointer[error] }

func (f *failure) err() error {
	if f == nil || f.first.Load() == nil {
		return nil
	}
	return *f.first.Load()
}

// set keeps the first failure, which it gives.
func (f *failure) set(err error) error {
	if f == nil || err == nil {
		return err
	}
	err = fmt.Errorf("%w (%w)", err, ErrDevices)
	f.first.CompareAndSwap(nil, &err)
	return *f.first.Load()
}

// Devices is the number of devices of the engine's mesh, over which the rows of a batch are cut.
func (e *Engine) Devices() int {
	if e.Mesh == nil {
		return 1
	}
	return e.Mesh.NumDevices()
}

// shards is an array on all devices of a mesh. But for programs it is one buffer with the shape of the whole.
type shards struct {
	engine *Engine
	shape  shapes.Shape
	axis   int              // that is cut over the devices; -1: each device has all
	parts  []compute.Buffer // by device
}

// Part is the share of an array that lies on a device of its mesh, where it stays: finalise the whole alone. A buffer
// of one device is its own.
func Part(b compute.Buffer, device int) compute.Buffer {
	if s, ok := b.(*shards); ok {
		return s.parts[device]
	}
	return b
}

// axisOf is the axis of an array that is cut over the devices; -1: it is whole on every device.
func axisOf[A ~[]string](axes []A) int {
	return slices.IndexFunc(axes, func(a A) bool { return len(a) > 0 })
}

// partShape is the shape of each device's part of an array whose axis is cut over n devices.
func partShape(shape shapes.Shape, axis, n int) (shapes.Shape, error) {
	part := shape.Clone()
	if axis < 0 {
		return part, nil
	}
	if part.Dimensions[axis]%n != 0 {
		return part, fmt.Errorf("axis %d of dimensions %v is not a multiple of the %d devices that it is cut over", axis,
			shape.Dimensions, n)
	}
	part.Dimensions[axis] /= n
	return part, nil
}

// stretches calls f for the stretches of the array that a device has, with where each begins in the array and in the
// part, and its number of elements.
func (s *shards) stretches(device int, f func(inWhole, inPart, n int)) {
	if s.axis < 0 {
		f(0, 0, s.shape.Size())
		return
	}
	devices, n := s.engine.Devices(), 1
	for _, d := range s.shape.Dimensions[s.axis:] {
		n *= d
	}
	n /= devices
	for i := range s.shape.Size() / (n * devices) {
		f((i*devices+device)*n, i*n, n)
	}
}

// putShards copies a slice to the devices: the part of each, or the whole.
func (e *Engine) putShards(spec *distributed.ShardingSpec, flat any, shape shapes.Shape) (compute.Buffer, error) {
	s := &shards{engine: e, shape: shape, axis: -1}
	if spec != nil {
		s.axis = axisOf(spec.Axes)
	}
	shape, err := partShape(shape, s.axis, e.Devices())
	if err != nil {
		return nil, err
	}
	from, scratch := reflect.ValueOf(flat), flat
	if s.axis >= 0 { // the host holds one part more
		scratch = reflect.MakeSlice(from.Type(), shape.Size(), shape.Size()).Interface()
	}
	for d := range e.Devices() {
		if s.axis >= 0 {
			s.stretches(d, func(inWhole, inPart, n int) {
				reflect.Copy(reflect.ValueOf(scratch).Slice(inPart, inPart+n), from.Slice(inWhole, inWhole+n))
			})
		}
		part, err := e.Backend.BufferFromFlatData(compute.DeviceNum(d), scratch, shape)
		if err != nil {
			FinalizeAll(s.parts...)
			return nil, err
		}
		s.parts = append(s.parts, part)
	}
	return s, nil
}

// ToFlatData joins the parts.
func (s *shards) ToFlatData(flat any) error {
	failed := s.engine.failed
	if err := failed.err(); err != nil {
		return err
	}
	if s.axis < 0 {
		return failed.set(s.parts[0].ToFlatData(flat))
	}
	to := reflect.ValueOf(flat)
	n := s.shape.Size() / len(s.parts)
	from := reflect.MakeSlice(to.Type(), n, n)
	for d, part := range s.parts {
		if err := failed.set(part.ToFlatData(from.Interface())); err != nil { // perhaps of the program that was to write it
			return err
		}
		s.stretches(d, func(inWhole, inPart, n int) {
			reflect.Copy(to.Slice(inWhole, inWhole+n), from.Slice(inPart, inPart+n))
		})
	}
	return nil
}

func (s *shards) Backend() compute.Backend              { return s.engine.owner }
func (s *shards) Shape() (shapes.Shape, error)          { return s.shape, nil }
func (s *shards) DeviceNum() (compute.DeviceNum, error) { return 0, nil } // it lies on more
func (s *shards) Data() (any, error)                    { return nil, errors.New("it lies on several devices") }
func (s *shards) CopyToDevice(compute.DeviceNum) (compute.Buffer, error) {
	return nil, errors.New("it lies on several devices")
}

// Finalize frees all parts, unless a failure left devices that wait.
func (s *shards) Finalize() error {
	if s.engine.failed.err() == nil {
		FinalizeAll(s.parts...)
		s.shape = shapes.Invalid()
	}
	return nil
}

// checkShards looks at every part of an input: after a run that fails for the shape or the device of one, XLA's next
// program never ends.
func (p *Program) checkShards(b compute.Buffer, want shapes.Shape, spec *compute.ShardingSpec) error {
	s, ok := b.(*shards)
	if !ok || len(s.parts) != p.engine.Devices() {
		return fmt.Errorf("found a buffer of one device, want one on the %d of the mesh", p.engine.Devices())
	}
	axis := -1
	if spec != nil {
		axis = axisOf(spec.Axes)
	}
	if s.axis != axis {
		return fmt.Errorf("axis %d of it is cut over the devices, want axis %d (-1: none)", s.axis, axis)
	}
	shape, err := partShape(want, axis, len(s.parts))
	if err != nil {
		return err
	}
	for d, part := range s.parts {
		err := p.checkBuffer(part, shape)
		if on, e := part.DeviceNum(); err == nil && (e != nil || int(on) != d) {
			err = cmp.Or(e, fmt.Errorf("the part lies on device %d", on))
		}
		if err != nil {
			return fmt.Errorf("device %d: %w", d, err)
		}
	}
	return nil
}

// execute runs the compiled program on its device, or on all devices of the mesh.
func (p *Program) execute(inputs []compute.Buffer, donate []bool) ([]compute.Buffer, error) {
	if p.engine.Mesh == nil {
		return p.exec.Execute(inputs, donate, 0)
	}
	n := p.engine.Devices()
	var parts []compute.Buffer // device by device
	for d := range n {
		for _, b := range inputs {
			parts = append(parts, b.(*shards).parts[d])
		}
	}
	out, err := p.exec.Execute(parts, slices.Repeat(donate, n), 0)
	if err != nil {
		return nil, err
	}
	outputs := make([]compute.Buffer, len(p.outputs))
	for i, shape := range p.outputs {
		s := &shards{engine: p.engine, shape: shape, axis: axisOf(p.cut[i].Axes)}
		for d := range n {
			s.parts = append(s.parts, out[d*len(p.outputs)+i])
		}
		outputs[i] = s
	}
	return outputs, nil
}
