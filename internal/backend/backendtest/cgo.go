//go:build cgo && linux

package backendtest

// Cgo reports whether onnx and xla are built in.
const Cgo = true
