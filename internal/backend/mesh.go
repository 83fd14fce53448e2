package backend

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/distributed"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/posttrain/posttrain/internal/launch"
)

// Mesh says on how many devices of the machine programs run: the rows of a batch are cut over Data devices, and each
// such share runs on Tensor devices, over which the weights are cut. 0 is 1.
type Mesh struct {
	Data, Tensor int
	Shard        Shard // what else is cut over Data
}

// Shard says what of a model that is trained is cut over the data devices of a mesh, beside rows.
type Shard string

const (
	ShardNone    Shard = "none"    // the same as ""
	ShardMoments Shard = "moments" // gradients, float32 weights and moments too (ZeRO-2)
)

// The names of the axes of [Engine.Mesh].
const (
	DataAxis   = "data"
	TensorAxis = "tensor"
)

// mostVirtual is the most devices that a CPU is cut into: each costs threads.
const mostVirtual = 64

// Devices is the number of devices of the mesh.
func (m Mesh) Devices() int { return max(1, m.Data) * max(1, m.Tensor) }

func (m Mesh) String() string {
	return fmt.Sprintf("data %d × tensor %d, %d devices", max(1, m.Data), max(1, m.Tensor), m.Devices())
}

// OpenMesh is [Open] with programs that run on all devices of a mesh at once: arrays are cut over it, or whole on each
// device, and XLA's partitioner cuts the program. Only xla can. On a CPU the devices are shares of the processor, for
// tests and rehearsals.
func OpenMesh(spec string, m Mesh) (e *Engine, err error) {
	if m.Devices() == 1 {
		return Open(spec)
	}
	defer catchPanic(&err, "open "+spec)
	if p := launch.Several(os.Getenv); p != nil {
		return nil, fmt.Errorf("engine.mesh (%s): found %v: a mesh has devices of one process, since go-xla makes "+
			"PJRT clients without the key-value callbacks by which processes find each other's: want one process", m, p)
	}
	name, arg, _ := strings.Cut(spec, ":")
	if name != "xla" {
		return nil, fmt.Errorf("backend %q: engine.mesh (%s): only xla computes on several devices: want "+
			"--backend xla or a mesh of 1", spec, m)
	}
	if e, err = openXLA(arg, m.Devices()); err != nil {
		return nil, err
	}
	e.rows = false // for products on one CPU; XLA would gather activations of the whole batch for weight gradients
	e.Mesh, err = distributed.NewDeviceMesh([]int{max(1, m.Data), max(1, m.Tensor)}, []string{DataAxis, TensorAxis})
	e.failed, e.Shard = &failure{}, m.Shard
	e.Wants.Tokens *= max(1, m.Data)
	return e, err
}

// checkDevices refuses a mesh that is larger than the machine.
func checkDevices(have, want int) error {
	if have < want {
		return fmt.Errorf("engine.mesh: it has %d devices (data × tensor), and the plugin sees %d: want a smaller mesh",
			want, have)
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
	if f == nil {
		return err
	}
	err = fmt.Errorf("%w (%w)", err, ErrDevices)
	f.first.CompareAndSwap(nil, &err)
	return *f.first.Load()
}

// Device is the engine with one device of its mesh: what it uploads lies there, and its programs run there alone. Its
// Close does nothing.
func (e *Engine) Device(number int) *Engine {
	one := *e
	one.Mesh, one.device, one.view = nil, compute.DeviceNum(number), true
	if e.Mesh != nil {
		one.Wants.Tokens /= e.meshSize(DataAxis)
	}
	return &one
}

// Devices is the number of devices of the engine's mesh.
func (e *Engine) Devices() int {
	if e.Mesh == nil {
		return 1
	}
	return e.Mesh.NumDevices()
}

// meshSize is the number of devices along an axis of the mesh, 1 without a mesh.
func (e *Engine) meshSize(axis string) int {
	if e.Mesh == nil {
		return 1
	}
	n, err := e.Mesh.AxisSize(axis)
	if err != nil {
		return 1
	}
	return n
}

// DataDevices is the number of devices that the rows of a batch are cut over.
func (e *Engine) DataDevices() int { return e.meshSize(DataAxis) }

// TensorDevices is the number of devices that weights are cut over.
func (e *Engine) TensorDevices() int { return e.meshSize(TensorAxis) }

// shards is an array on all devices of a mesh. But for programs it is one buffer with the shape of the whole.
type shards struct {
	engine *Engine
	shape  shapes.Shape
	axes   []distributed.AxisSpec // those of the mesh that each axis of the array is cut over
	parts  []compute.Buffer       // by device; device d of a mesh 2×2 is (d/2, d%2)
}

// Part is the share of an array that lies on a device of its mesh, where it stays: finalise the whole alone. A buffer
// of one device is its own.
func Part(b compute.Buffer, device int) compute.Buffer {
	if s, ok := b.(*shards); ok {
		return s.parts[device]
	}
	return b
}

// axesOf gives the mesh's axes for each axis of an array; nil: it is whole on every device.
func axesOf(spec *distributed.ShardingSpec, rank int) []distributed.AxisSpec {
	axes := make([]distributed.AxisSpec, rank)
	if spec != nil {
		copy(axes, spec.Axes)
	}
	return axes
}

// box is the place of a device's part in the whole array.
type box struct{ dims, from, size []int }

// boxOf gives the part of an array of these dimensions that lies on a device.
func boxOf(mesh *distributed.DeviceMesh, axes []distributed.AxisSpec, dims []int, device int) (box, error) {
	at, sizes, names := map[string]int{}, mesh.AxesSizes(), mesh.AxesNames()
	for i, rest := len(sizes)-1, device; i >= 0; i-- {
		at[names[i]], rest = rest%sizes[i], rest/sizes[i]
	}
	b := box{dims, make([]int, len(dims)), slices.Clone(dims)}
	for i := range dims {
		pieces, place := 1, 0
		for _, name := range axes[i] {
			n, err := mesh.AxisSize(name)
			if err != nil {
				return b, err
			}
			pieces, place = pieces*n, place*n+at[name]
		}
		if dims[i]%pieces != 0 {
			return b, fmt.Errorf("axis %d of dimensions %v is not a multiple of the %d devices that it is cut over", i,
				dims, pieces)
		}
		b.size[i] = dims[i] / pieces
		b.from[i] = place * b.size[i]
	}
	return b, nil
}

// whole says that the part is the array.
func (b box) whole() bool { return slices.Equal(b.dims, b.size) }

// stretches calls f for all stretches that are contiguous in both: where they begin in the array and in the part, and
// their number of elements.
func (b box) stretches(f func(inWhole, inPart, n int)) {
	last := len(b.dims) - 1 // axes behind it are whole
	for last > 0 && b.size[last] == b.dims[last] {
		last--
	}
	n := 1
	for _, d := range b.size[last:] {
		n *= d
	}
	tail := 1
	for _, d := range b.dims[last+1:] {
		tail *= d
	}
	part := 0
	var walk func(axis, offset int)
	walk = func(axis, offset int) {
		if axis == last {
			f((offset*b.dims[axis]+b.from[axis])*tail, part, n)
			part += n
			return
		}
		for i := range b.size[axis] {
			walk(axis+1, offset*b.dims[axis]+b.from[axis]+i)
		}
	}
	walk(0, 0)
}

// putShards copies a slice to the devices: the part of each, or the whole.
func (e *Engine) putShards(spec *distributed.ShardingSpec, flat any, shape shapes.Shape) (compute.Buffer, error) {
	s := &shards{engine: e, shape: shape, axes: axesOf(spec, shape.Rank())}
	var scratch reflect.Value // of one part: the host holds no more
	for d := range e.Mesh.NumDevices() {
		b, err := boxOf(e.Mesh, s.axes, shape.Dimensions, d)
		if err == nil {
			var part compute.Buffer
			on := compute.DeviceNum(d)
			part, err = e.Backend.BufferFromFlatData(on, cut(flat, b, &scratch), shapes.Make(shape.DType, b.size...))
			s.parts = append(s.parts, part)
		}
		if err != nil {
			FinalizeAll(s.parts...)
			return nil, err
		}
	}
	return s, nil
}

// cut copies a device's part out of an array, into scratch if that is there already.
func cut(flat any, b box, scratch *reflect.Value) any {
	if b.whole() {
		return flat
	}
	from := reflect.ValueOf(flat)
	if !scratch.IsValid() {
		n := shapes.Make(dtypes.Bool, b.size...).Size()
		*scratch = reflect.MakeSlice(from.Type(), n, n)
	}
	b.stretches(func(inWhole, inPart, n int) {
		reflect.Copy(scratch.Slice(inPart, inPart+n), from.Slice(inWhole, inWhole+n))
	})
	return scratch.Interface()
}

// ToFlatData joins the parts.
func (s *shards) ToFlatData(flat any) error {
	if err := s.engine.failed.err(); err != nil {
		return err
	}
	to := reflect.ValueOf(flat)
	var done []box
	for d, part := range s.parts {
		b, err := boxOf(s.engine.Mesh, s.axes, s.shape.Dimensions, d)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(done, func(o box) bool { return slices.Equal(o.from, b.from) }) {
			continue // another device's copy
		}
		done = append(done, b)
		if b.whole() {
			return s.engine.failed.read(part.ToFlatData(flat))
		}
		n := shapes.Make(dtypes.Bool, b.size...).Size()
		from := reflect.MakeSlice(to.Type(), n, n)
		if err := s.engine.failed.read(part.ToFlatData(from.Interface())); err != nil {
			return err
		}
		b.stretches(func(inWhole, inPart, n int) {
			reflect.Copy(to.Slice(inWhole, inWhole+n), from.Slice(inPart, inPart+n))
		})
	}
	return nil
}

// read is the error of reading a part, which may be that of the program that was to write it.
func (f *failure) read(err error) error {
	if err == nil {
		return nil
	}
	return f.set(err)
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
	if !ok || len(s.parts) != p.engine.Mesh.NumDevices() {
		return fmt.Errorf("found a buffer of one device, want one on the %d of the mesh", p.engine.Mesh.NumDevices())
	}
	axes := make([]distributed.AxisSpec, want.Rank())
	if spec != nil {
		for i, a := range spec.Axes {
			axes[i] = a
		}
	}
	if !slices.EqualFunc(axes, s.axes, slices.Equal[distributed.AxisSpec]) {
		return fmt.Errorf("it is cut over the axes %v of the mesh, want %v", s.axes, axes)
	}
	for d, part := range s.parts {
		box, err := boxOf(p.engine.Mesh, axes, want.Dimensions, d)
		if err != nil {
			return err
		}
		if err := p.checkPart(part, d, shapes.Make(want.DType, box.size...)); err != nil {
			return fmt.Errorf("device %d: %w", d, err)
		}
	}
	return nil
}

func (p *Program) checkPart(b compute.Buffer, device int, want shapes.Shape) error {
	if err := p.checkBuffer(b, want); err != nil {
		return err
	}
	on, err := b.DeviceNum()
	if err == nil && int(on) != device {
		err = fmt.Errorf("the part lies on device %d", on)
	}
	return err
}

// execute runs the compiled program on its device, or on all devices of the mesh.
func (p *Program) execute(inputs []compute.Buffer, donate []bool) ([]compute.Buffer, error) {
	if p.engine.Mesh == nil {
		return p.exec.Execute(inputs, donate, p.engine.device)
	}
	n := p.engine.Mesh.NumDevices()
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
		s := &shards{engine: p.engine, shape: shape, axes: axesOf(p.cut[i], shape.Rank())}
		for d := range n {
			s.parts = append(s.parts, out[d*len(p.outputs)+i])
		}
		outputs[i] = s
	}
	return outputs, nil
}
