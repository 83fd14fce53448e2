//go:build !(cgo && linux)

package backendtest

// Cgo tells whether onnx and xla are built in.
const Cgo = false
