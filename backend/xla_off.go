//go:build !(cgo && linux)

package backend

import "errors"

const xlaNotBuilt = "not built in: XLA needs Linux and a build with cgo"

func openXLA(string) (*Engine, error) {
	return nil, errors.New("backend xla: " + xlaNotBuilt + " (CGO_ENABLED=1 and a C compiler)")
}

func statusXLA() Status {
	return Status{Name: "xla", Detail: xlaNotBuilt, HowToGet: "build with CGO_ENABLED=1 and a C compiler, then " + xlaHowToGet}
}
