package model

import (
	"fmt"

	"github.com/gomlx/compute/distributed"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph"
)

// A mesh has one axis of devices. Rows are cut over it; weights are whole on every device. A mesh of one device is nil,
// and so is the spec of what is whole.

// CutRows cuts the first axis of an array over the devices: rows, tokens and slots.
func CutRows(mesh *distributed.DeviceMesh) *distributed.ShardingSpec { return cutAxis(mesh, 0) }

// CutState cuts what an update alone needs of a weight: its float32 copy, gradient and moments. It is the first axis
// that the devices divide, or none.
func CutState(mesh *distributed.DeviceMesh, shape []int) *distributed.ShardingSpec {
	for axis, n := range shape {
		if n%devicesOf(mesh) == 0 {
			return cutAxis(mesh, axis)
		}
	}
	return nil
}

// CutCache cuts prompts, the first axis of keys and values, if the devices divide them.
func CutCache(mesh *distributed.DeviceMesh, prompts int) *distributed.ShardingSpec {
	if prompts%devicesOf(mesh) != 0 {
		return nil
	}
	return CutRows(mesh)
}

func cutAxis(mesh *distributed.DeviceMesh, axis int) *distributed.ShardingSpec {
	if mesh == nil {
		return nil
	}
	spec := distributed.NewReplicatedShardingSpec(mesh)
	spec.Axes = make([]distributed.AxisSpec, axis+1)
	spec.Axes[axis] = mesh.AxesNames()
	return spec
}

func devicesOf(mesh *distributed.DeviceMesh) int {
	if mesh == nil {
		return 1
	}
	return mesh.NumDevices()
}

// CheckMesh refuses a mesh over which what an update needs is to be cut, and which does not divide the hidden size.
func (c *Config) CheckMesh(mesh *distributed.DeviceMesh, state bool) error {
	if n := devicesOf(mesh); state && c.HiddenSize%n != 0 {
		return fmt.Errorf("engine.devices: %d: the model's hidden_size is %d: want a divisor of it", n, c.HiddenSize)
	}
	return nil
}

// meshOf is the mesh that a graph is cut over; nil: none.
func meshOf(g *Graph) *distributed.DeviceMesh {
	if meshes := g.DeviceMeshes(); len(meshes) > 0 {
		return meshes[0]
	}
	return nil
}

// RowsParameter declares an array whose first axis is cut over the graph's mesh.
func RowsParameter(g *Graph, name string, shape shapes.Shape) *Node {
	return ShardedParameter(g, name, shape, CutRows(meshOf(g)))
}

// CacheParameter declares keys or values as [CutCache] cuts them over the graph's mesh.
func CacheParameter(g *Graph, name string, shape shapes.Shape) *Node {
	return ShardedParameter(g, name, shape, CutCache(meshOf(g), shape.Dimensions[0]))
}
