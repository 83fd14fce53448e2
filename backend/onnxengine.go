//go:build cgo && linux

package backend

import (
	"maps"

	"github.com/gomlx/compute"
	onnxbackend "github.com/gomlx/compute-onnx"
)

// onnxEngine decorates compute-onnx's engine: its graphs are faster ([onnxFunction] says how), and they refuse what
// ONNX Runtime gets wrong.
type onnxEngine struct{ *onnxbackend.Backend }

// Builder makes a decorated builder.
func (e *onnxEngine) Builder(name string) compute.Builder {
	b := e.Backend.Builder(name).(*onnxbackend.Builder)
	return &onnxBuilder{Builder: b, main: newONNXFunction(b.MainFunction())}
}

// Capabilities are compute-onnx's, but for two. Variables are never baked into a graph as constants, where they would
// keep the values of the time of compilation. The fused attention is not offered: for grouped queries it repeats the
// keys' heads in the wrong order, and it misreads masks where the length equals the number of heads.
func (e *onnxEngine) Capabilities() compute.Capabilities {
	c := e.Backend.Capabilities()
	c.PreferConstantsForVariables = false
	c.Operations = maps.Clone(c.Operations)
	delete(c.Operations, compute.OpTypeFusedScaledDotProductAttention)
	delete(c.Operations, compute.OpTypeFusedScaledDotProductAttentionVJP)
	return c
}

// FusedRMSNorm says that a FusedLayerNorm of negative epsilon is an RMSNorm of that epsilon here. Nothing that GoMLX has
// stands for one.
func (e *onnxEngine) FusedRMSNorm() bool { return true }

// onnxBuilder decorates compute-onnx's builder: operations go to the decorated main function.
type onnxBuilder struct {
	*onnxbackend.Builder
	main *onnxFunction
}

// Main gives the function that operations are added to.
func (b *onnxBuilder) Main() compute.Function { return b.main }
