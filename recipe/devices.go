package recipe

import (
	"fmt"
	"strings"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/config/fault"
)

// Devices says on how many devices of the machine a run trains, and what is cut over them. It changes results by
// rounding alone: a run may resume on another mesh.
type Devices struct {
	Mesh Mesh `yaml:"mesh"`
	// what is cut over the data devices beside rows
	Shard string `yaml:"shard,omitempty" want:"|none|moments|weights" words:"none, moments or weights"`
}

// Mesh is a number of devices in two dimensions.
type Mesh struct {
	// devices that the rows of a batch are cut over
	Data int `yaml:"data,omitempty" want:">=0" zero:"one device"`
	// devices that the weights are cut over, for each of these shares of the rows
	Tensor int `yaml:"tensor,omitempty" want:">=0" zero:"one device"`
}

func (d Devices) mesh() backend.Mesh {
	return backend.Mesh{Data: d.Mesh.Data, Tensor: d.Mesh.Tensor, Shard: backend.Shard(d.Shard)}
}

// several says that the run has more than one device.
func (d Devices) several() bool { return d.mesh().Devices() > 1 }

// Check refuses what is cut over one device, and cut weights.
func (d Devices) Check() []fault.Fault {
	var faults fault.Faults
	switch {
	case d.Shard == "weights":
		faults.Add("shard", d.Shard, "weights stay whole in each share of the data, since XLA would cut the "+
			"activations instead: want moments, and engine.mesh.tensor to cut weights")
	case d.Shard == string(backend.ShardMoments) && d.Mesh.Data < 2:
		faults.Add("shard", d.Shard, "without engine.mesh.data there are no devices to cut them over")
	}
	return faults
}

// CheckDevices refuses several devices where the engine has one.
func (d Devices) CheckDevices(g *config.Given, spec string) {
	if engine, _, _ := strings.Cut(spec, ":"); engine != "go" && engine != "onnx" {
		return
	}
	refuse := func(key string, n int) {
		if n > 1 {
			g.Fault(key, "%s %d: backend %s computes on one device, only xla can use several", key, n, spec)
		}
	}
	refuse("engine.mesh.data", d.Mesh.Data)
	refuse("engine.mesh.tensor", d.Mesh.Tensor)
}

// Explain says in a line how the work is cut; nothing on one device.
func (d Devices) Explain() string {
	if !d.several() {
		return ""
	}
	text := fmt.Sprintf("devices: %d, rows cut over %d, weights over %d", d.mesh().Devices(), max(1, d.Mesh.Data),
		max(1, d.Mesh.Tensor))
	if d.Shard == string(backend.ShardMoments) {
		text += fmt.Sprintf("; gradients, float32 weights and moments over all %d", d.mesh().Devices())
	}
	return text + "\n"
}
