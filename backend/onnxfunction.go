//go:build cgo && linux

package backend

import (
	"github.com/gomlx/compute"
	onnxbackend "github.com/gomlx/compute-onnx"
)

// onnxEngine decorates compute-onnx's engine.
type onnxEngine struct{ *onnxbackend.Backend }

var _ compute.Backend = (*onnxEngine)(nil)
