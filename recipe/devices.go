package recipe

import (
	"fmt"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/config/fault"
)

// Devices says on how many devices of the machine a run trains, and what is cut over them. It changes results by
// rounding alone: a run may resume on another mesh.
type Devices struct {
	Devices int    `yaml:"devices,omitempty" want:">=0" zero:"one" flag:"devices" help:"devices that the rows of a batch are cut over (xla)"`
	Shard   string `yaml:"shard,omitempty" want:"|none|moments" words:"none or moments" flag:"shard" help:"what else is cut over the devices: none, or moments (with gradients and float32 weights)"`
}

func (d Devices) mesh() backend.Mesh {
	return backend.Mesh{Data: d.Devices, Shard: backend.Shard(d.Shard)}
}

// several says that the run has more than one device.
func (d Devices) several() bool { return d.mesh().Devices() > 1 }

// Check refuses what is cut over one device.
func (d Devices) Check() []fault.Fault {
	var faults fault.Faults
	if d.Shard == string(backend.ShardMoments) && !d.several() {
		faults.Add("shard", d.Shard, "want engine.devices too, the number of devices")
	}
	return faults
}

// Explain says in a line how the work is cut; nothing on one device.
func (d Devices) Explain() string {
	if !d.several() {
		return ""
	}
	text := fmt.Sprintf("devices: %d, over which rows are cut", d.Devices)
	if d.Shard == string(backend.ShardMoments) {
		text += ", and gradients, float32 weights and moments"
	}
	return text + "\n"
}
