//go:build !(goexperiment.simd && amd64)

package backend

import "runtime"

// goHint says what would make the engine faster; "" if nothing would.
var goHint = map[string]string{
	"amd64": "its vector kernels are not built in: build with GOEXPERIMENT=simd, which makes it two to four times as fast",
}[runtime.GOARCH]

func chooseKernels() {}
