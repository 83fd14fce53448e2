package backend

import (
	"errors"
	"reflect"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/distributed"
	"github.com/gomlx/compute/shapes"
)

// phantom makes an array of an engine whose device is not there; on a mesh, one cut as the spec says.
func (e *Engine) phantom(spec *distributed.ShardingSpec, shape shapes.Shape) (compute.Buffer, error) {
	if e.Mesh == nil {
		return &phantom{e.owner, 0, shape}, nil
	}
	s := &shards{engine: e, shape: shape, axis: -1}
	if spec != nil {
		s.axis = axisOf(spec.Axes)
	}
	part, err := partShape(shape, s.axis, e.Devices())
	for d := range e.Devices() {
		s.parts = append(s.parts, &phantom{e.owner, compute.DeviceNum(d), part})
	}
	return s, err
}

// phantoms are the outputs of a program for a device that is not there.
func (p *Program) phantoms() (all []compute.Buffer, err error) {
	for i, shape := range p.outputs {
		var cut *distributed.ShardingSpec
		if p.cut != nil {
			cut = p.cut[i]
		}
		b, err := p.engine.phantom(cut, shape)
		if err != nil {
			return nil, err
		}
		all = append(all, b)
	}
	return all, nil
}

// phantom is an array with a shape and no values.
type phantom struct {
	backend compute.Backend
	device  compute.DeviceNum
	shape   shapes.Shape
}

func (p *phantom) Backend() compute.Backend              { return p.backend }
func (p *phantom) Shape() (shapes.Shape, error)          { return p.shape, nil }
func (p *phantom) DeviceNum() (compute.DeviceNum, error) { return p.device, nil }
func (p *phantom) Data() (any, error)                    { return nil, errors.New("it has no values") }
func (p *phantom) CopyToDevice(at compute.DeviceNum) (compute.Buffer, error) {
	return &phantom{p.backend, at, p.shape}, nil
}

// ToFlatData reads zeros.
func (p *phantom) ToFlatData(flat any) error {
	reflect.ValueOf(flat).Clear()
	return nil
}

// Finalize makes the array unusable.
func (p *phantom) Finalize() error {
	p.shape = shapes.Invalid()
	return nil
}
