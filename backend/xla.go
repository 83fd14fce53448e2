//go:build cgo && linux

package backend

import (
	"fmt"

	"github.com/gomlx/go-xla/compute/xla"
)

// openXLA opens a PJRT plugin.
func openXLA(plugin string) (*Engine, error) {
	xla.EnableAutoInstall(false)
	b, err := xla.New(plugin)
	if err != nil {
		return nil, fmt.Errorf("backend xla: %s: %s", oneLine(err.Error()), xlaHowToGet)
	}
	return newEngine("xla", b, b, Wants{BFloat16: true, LiveGraphs: 32}), nil
}

func statusXLA() Status { return Status{Name: "xla", Detail: "unknown", HowToGet: xlaHowToGet} }
