package model

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/gomlx/compute/distributed"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph"
)

// The axes of a mesh: rows are cut over data, weights over tensor. A mesh of one device is nil, and so is the spec of
// what is whole on every device.
const (
	dataAxis   = "data"
	tensorAxis = "tensor"
)

// CutRows cuts the first axis of an array over data: rows, tokens and slots.
func CutRows(mesh *distributed.DeviceMesh) *distributed.ShardingSpec {
	return cutBy(mesh, [][]string{{dataAxis}})
}

// CutWeight cuts a weight over tensor, so that only the sums behind o and down, and those over the vocabulary, need
// other devices (Shoeybi et al. 2019): queries, keys, values, gate and up with their biases by their outputs, o and
// down by their inputs, the tables by tokens. Norms, routers of experts, the layers that phi3 fuses, and the side of an
// adapter that has the rank, are whole.
func CutWeight(mesh *distributed.DeviceMesh, name string, shape []int) *distributed.ShardingSpec {
	return cutBy(mesh, tensorCut(name, shape))
}

// CutState cuts what an update alone needs of a weight: its float32 copy, gradient and moments. It is CutWeight, and
// another axis that divides is cut over data; the same one if no other does.
func CutState(mesh *distributed.DeviceMesh, name string, shape []int) *distributed.ShardingSpec {
	axes, data := tensorCut(name, shape), axisSize(mesh, dataAxis)
	pieces := func(axis int) int {
		if len(axes[axis]) > 0 {
			return data * axisSize(mesh, tensorAxis)
		}
		return data
	}
	best := -1
	for i, n := range shape {
		if n%pieces(i) == 0 && (best < 0 || len(axes[best]) > 0) {
			best = i
		}
	}
	if best >= 0 {
		axes[best] = append(axes[best], dataAxis)
	}
	return cutBy(mesh, axes)
}

// tensorCut gives the axes of the mesh for each axis of a weight.
func tensorCut(name string, shape []int) [][]string {
	axes := make([][]string, len(shape))
	if axis := tensorSide(name); axis >= 0 {
		axes[axis] = []string{tensorAxis}
	}
	return axes
}

// tensorSide is the axis of a weight that is cut over tensor; -1: none.
func tensorSide(name string) int {
	module, loraPart := name, ""
	for _, end := range []string{loraA, loraB} {
		if m, ok := strings.CutSuffix(name, end); ok {
			module, loraPart = m+".weight", end
		}
	}
	side := -1
	switch parts := strings.Split(module, "."); {
	case module == embedName, module == headName:
		side = 0
	case len(parts) > 1:
		side = linearSide(parts[len(parts)-2], parts[len(parts)-1])
	}
	if loraPart == loraA && side == 0 || loraPart == loraB && side == 1 {
		return -1
	}
	return side
}

// linearSide is tensorSide of a linear layer's weight or bias. The bias of o or down is added to the whole sum.
func linearSide(layer, what string) int {
	switch layer {
	case "q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "w1", "w3":
		return 0
	case "o_proj", "down_proj", "w2":
		if what == "weight" {
			return 1
		}
	}
	return -1
}

// CutCache cuts keys and values [prompts, kv, …]: the heads over tensor, and the prompts over data if they divide.
func CutCache(mesh *distributed.DeviceMesh, shape ...int) *distributed.ShardingSpec {
	axes := [][]string{nil, {tensorAxis}}
	if shape[0]%axisSize(mesh, dataAxis) == 0 {
		axes[0] = []string{dataAxis}
	}
	return cutBy(mesh, axes)
}

// cutBy leaves out the axes of one device.
func cutBy(mesh *distributed.DeviceMesh, axes [][]string) *distributed.ShardingSpec {
	if mesh == nil {
		return nil
	}
	spec := distributed.NewReplicatedShardingSpec(mesh)
	for _, names := range axes {
		var used distributed.AxisSpec
		for _, n := range names {
			if axisSize(mesh, n) > 1 {
				used = append(used, n)
			}
		}
		spec.Axes = append(spec.Axes, used)
	}
	return spec
}

func axisSize(mesh *distributed.DeviceMesh, name string) int {
	if mesh == nil {
		return 1
	}
	n, err := mesh.AxisSize(name)
	if err != nil {
		return 1
	}
	return n
}

// CheckMesh refuses a mesh that does not divide the model's sizes; state: what an update needs is cut over data. XLA
// would compile it all the same.
func (c *Config) CheckMesh(mesh *distributed.DeviceMesh, state bool) error {
	sizes := []struct {
		name, over string
		size       int
	}{
		{"num_attention_heads", tensorAxis, c.Heads}, {"num_key_value_heads", tensorAxis, c.KVHeads},
		{"intermediate_size", tensorAxis, cmp.Or(c.ExpertSize, c.IntermediateSize)},
		{"vocab_size", tensorAxis, c.VocabSize},
		{"hidden_size", dataAxis, c.HiddenSize},
	}
	if !state {
		sizes = sizes[:4]
	}
	for _, s := range sizes {
		if n := axisSize(mesh, s.over); s.size%n != 0 {
			return fmt.Errorf("engine.mesh.%s: %d: the model's %s is %d: want a divisor of it", s.over, n, s.name,
				s.size)
		}
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

// WeightParameter declares a weight as [CutWeight] cuts it over the graph's mesh.
func WeightParameter(g *Graph, name string, shape shapes.Shape) *Node {
	return ShardedParameter(g, name, shape, CutWeight(meshOf(g), name, shape.Dimensions))
}

// RowsParameter declares an array whose first axis is cut over the data of the graph's mesh.
func RowsParameter(g *Graph, name string, shape shapes.Shape) *Node {
	return ShardedParameter(g, name, shape, CutRows(meshOf(g)))
}

// CacheParameter declares keys or values as [CutCache] cuts them over the graph's mesh.
func CacheParameter(g *Graph, name string, shape shapes.Shape) *Node {
	return ShardedParameter(g, name, shape, CutCache(meshOf(g), shape.Dimensions...))
}
