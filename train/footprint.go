package train

import (
	"fmt"
	"strings"

	"github.com/gomlx/compute/dtypes"
)

// Footprint is the memory that training holds for every parameter of a model, in bytes. The engine's share for
// activations comes on top.
type Footprint struct {
	Parameters                             int
	Weights, Moments, Gradients, Reference int
}

// Footprint is the learner's, without a reference.
func (l *Learner) Footprint(rule AdamW) Footprint {
	f := Footprint{Parameters: l.model.Config.ParamCount(), Weights: 4, Gradients: 4}
	f.Moments = 2 * rule.momentType().Size()
	if l.engine.Wants.SharedMemory {
		f.Gradients = 8 // the next part's is computed beside the sum
	}
	return f
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
	return fmt.Sprintf("memory: %d bytes for each of %.1fM parameters (%s), %.2f GB, and activations", f.Bytes(),
		float64(f.Parameters)/1e6, strings.Join(parts, ", "), float64(f.Bytes()*f.Parameters)/1e9)
}
