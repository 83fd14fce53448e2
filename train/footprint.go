package train

import (
	"fmt"
	"strings"

	"github.com/gomlx/compute/dtypes"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/model"
)

// Footprint is the memory that training holds for every trained parameter of a model, in bytes, and for frozen ones.
// The engine's share for activations comes on top.
type Footprint struct {
	Parameters                             int // trained
	Weights, Moments, Gradients, Reference int
	Frozen, FrozenBytes                    int // parameters below an adapter, and the bytes of all
	Device                                 *DeviceBytes
}

// DeviceBytes is what each device of a mesh holds, in bytes.
type DeviceBytes struct {
	Mesh                                           string
	Weights, Frozen, Moments, Gradients, Reference int
	trained                                        int // elements of the trained weights that a device computes with
}

// Sum is all of it.
func (d DeviceBytes) Sum() int { return d.Weights + d.Frozen + d.Moments + d.Gradients + d.Reference }

// Each is what each device holds: of one device, all.
func (f Footprint) Each() DeviceBytes {
	if d := f.Device; d != nil {
		each := *d
		each.Reference = f.Reference * d.trained
		return each
	}
	return DeviceBytes{Weights: f.Weights * f.Parameters, Frozen: f.FrozenBytes, Moments: f.Moments * f.Parameters,
		Gradients: f.Gradients * f.Parameters, Reference: f.Reference * f.Parameters}
}

// Footprint is the learner's, without a reference.
func (l *Learner) Footprint(optimizer AdamW) Footprint {
	f := Footprint{Parameters: sizeOf(l.model.Trained()), Weights: 4, Gradients: 4}
	if n := l.model.Config.Frozen(); n > 0 {
		f.Frozen, f.FrozenBytes = sizeOf(l.model.Params[:n]), l.model.Config.FrozenBytes(l.graph.ComputeType())
	}
	f.Moments = 2 * optimizer.momentType().Size()
	if l.engine.Wants.SharedMemory {
		f.Gradients = 8 // the next microbatch's is computed beside the sum
	}
	if l.engine.Mesh != nil {
		f.Device = l.deviceBytes(f)
	}
	return f
}

// deviceBytes is each device's share of a footprint.
func (l *Learner) deviceBytes(f Footprint) *DeviceBytes {
	e := l.engine
	d := &DeviceBytes{Mesh: fmt.Sprintf("%d devices", e.Devices())}
	for i, p := range l.model.Params {
		whole := p.Size()
		if i < len(l.frozen) {
			d.Frozen += whole * l.ReferenceBytes()
			continue
		}
		own := whole
		if cutState(e, p) != nil {
			own /= e.Devices()
		}
		d.trained += whole
		d.Weights, d.Moments, d.Gradients = d.Weights+4*own, d.Moments+f.Moments*own, d.Gradients+4*own
		if e.Shard == backend.ShardMoments {
			d.Weights += whole * copyType(p, l.BFloat16()).Size()
		}
	}
	return d
}

// text is the sum and its parts in a line.
func (d DeviceBytes) text() string {
	var parts []string
	for _, part := range []struct {
		name  string
		bytes int
	}{{"weights", d.Weights}, {"frozen weights", d.Frozen}, {"moments", d.Moments}, {"gradients", d.Gradients},
		{"reference", d.Reference}} {
		if part.bytes > 0 {
			parts = append(parts, fmt.Sprintf("%s %s", part.name, gigabytes(part.bytes)))
		}
	}
	return fmt.Sprintf("memory of each device (%s): %s, %s, and activations", d.Mesh, gigabytes(d.Sum()),
		strings.Join(parts, ", "))
}

func gigabytes(n int) string {
	if n < 1e8 {
		return fmt.Sprintf("%.3f MB", float64(n)/1e6)
	}
	return fmt.Sprintf("%.2f GB", float64(n)/1e9)
}

func sizeOf(params []*model.Param) (n int) {
	for _, p := range params {
		n += p.Size()
	}
	return n
}

// ReferenceBytes is what Upload takes for every parameter.
func (l *Learner) ReferenceBytes() int {
	if l.BFloat16() {
		return dtypes.BFloat16.Size()
	}
	return dtypes.Float32.Size()
}

// Bytes is the sum for one parameter.
func (f Footprint) Bytes() int { return f.Weights + f.Moments + f.Gradients + f.Reference }

// String says the sum and its parts in a line.
func (f Footprint) String() string {
	if f.Device != nil {
		return f.Each().text()
	}
	var parts []string
	for _, part := range []struct {
		name  string
		bytes int
	}{{"weights", f.Weights}, {"moments", f.Moments}, {"gradients", f.Gradients}, {"reference", f.Reference}} {
		if part.bytes > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", part.name, part.bytes))
		}
	}
	frozen, of := "", ""
	if f.Frozen > 0 {
		frozen = fmt.Sprintf("%.3g bytes for each of %.1fM frozen parameters and ",
			float64(f.FrozenBytes)/float64(f.Frozen), float64(f.Frozen)/1e6)
		of = " of the adapter"
	}
	return fmt.Sprintf("memory: %s%d bytes for each of %.1fM parameters%s (%s), %.2f GB, and activations", frozen,
		f.Bytes(), float64(f.Parameters)/1e6, of, strings.Join(parts, ", "),
		float64(f.Bytes()*f.Parameters+f.FrozenBytes)/1e9)
}
