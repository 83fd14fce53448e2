package train

import (
	"fmt"
	"strings"

	"github.com/gomlx/compute/dtypes"

	"github.com/posttrain/posttrain/model"
)

// Footprint is the memory that training holds for every trained parameter of a model, in bytes, and for every frozen
// one. The engine's share for activations comes on top.
type Footprint struct {
	Parameters                             int // trained
	Weights, Moments, Gradients, Reference int
	Frozen, FrozenBytes                    int // parameters below an adapter, and the bytes of each
}

// Footprint is the learner's, without a reference.
func (l *Learner) Footprint(rule AdamW) Footprint {
	f := Footprint{Parameters: sizeOf(l.model.Trained()), Weights: 4, Gradients: 4}
	if n := l.model.Config.Frozen(); n > 0 {
		f.Frozen, f.FrozenBytes = sizeOf(l.model.Params[:n]), l.ReferenceBytes()
	}
	f.Moments = 2 * rule.momentType().Size()
	if l.engine.Wants.SharedMemory {
		f.Gradients = 8 // the next part's is computed beside the sum
	}
	return f
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
		frozen = fmt.Sprintf("%d bytes for each of %.1fM frozen parameters and ", f.FrozenBytes, float64(f.Frozen)/1e6)
		of = " of the adapter"
	}
	return fmt.Sprintf("memory: %s%d bytes for each of %.1fM parameters%s (%s), %.2f GB, and activations", frozen,
		f.Bytes(), float64(f.Parameters)/1e6, of, strings.Join(parts, ", "),
		float64(f.Bytes()*f.Parameters+f.FrozenBytes*f.Frozen)/1e9)
}
