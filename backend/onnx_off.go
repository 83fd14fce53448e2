//go:build !(cgo && linux)

package backend

import "errors"

const onnxBuilt = false

const onnxNotBuilt = "not built in: ONNX Runtime needs Linux and a build with cgo"

func openONNX(string) (*Engine, error) {
	return nil, errors.New("backend onnx: " + onnxNotBuilt + " (CGO_ENABLED=1 and a C compiler)")
}

func statusONNX() Status {
	return Status{Name: "onnx", Detail: onnxNotBuilt, HowToGet: "build with CGO_ENABLED=1 and a C compiler, then " + onnxHowToGet}
}
