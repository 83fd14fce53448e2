//go:build cgo && linux

package backend

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-logr/logr"
	"github.com/gomlx/go-xla/compute/xla"
	"k8s.io/klog/v2"
)

// openXLA opens a PJRT plugin: the best that go-xla finds (""), one by name (cpu, cuda), or one by path, each with
// go-xla's options after a comma (tf32=false, preallocate=true, memory_fraction=0.9, visible_devices=0;1).
//
// Untested beyond its errors: no plugin was at hand.
func openXLA(arg string) (*Engine, error) {
	xla.EnableAutoInstall(false) // nothing is linked that could, and nothing shall
	config, plugin, err := xlaConfig(arg)
	if err != nil {
		return nil, fmt.Errorf("backend xla: %w: %s", err, xlaHowToGet)
	}
	for key, value := range pluginEnvironment(plugin) {
		if err := os.Setenv(key, value); err != nil {
			return nil, fmt.Errorf("backend xla: set %s: %w", key, err)
		}
	}
	klog.SetLogger(logr.Discard()) // the error says it all
	defer klog.ClearLogger()
	b, err := xla.New(config)
	switch {
	case err != nil && !filepath.IsAbs(plugin) && len(findPlugins()) == 0:
		return nil, fmt.Errorf("backend xla: %w: %s", noPlugin(), xlaHowToGet)
	case err != nil:
		return nil, fmt.Errorf("backend xla: open %q: %s", config, oneLine(err.Error()))
	}
	return newEngine("xla", b, b, Wants{BFloat16: true, LiveGraphs: 32}), nil
}

func statusXLA() Status {
	found := findPlugins()
	if len(found) == 0 {
		return Status{Name: "xla", Detail: noPlugin().Error(), HowToGet: xlaHowToGet}
	}
	return Status{Name: "xla", Present: true, Untried: true, Detail: "PJRT, " + strings.Join(found, ", ") + " (execution untested)"}
}
