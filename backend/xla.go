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
// Only its error paths have been tested: no plugin was at hand.
func openXLA(arg string) (*Engine, error) {
	xla.EnableAutoInstall(false) // never download
	config, plugin, err := xlaConfig(arg)
	if err != nil {
		return nil, fmt.Errorf("backend xla: %w: %s", err, xlaHowToGet)
	}
	if !filepath.IsAbs(plugin) && len(pluginFolders()) == 0 {
		return nil, fmt.Errorf("backend xla: %w: %s", noPluginError(), xlaHowToGet)
	}
	for key, value := range pluginEnvironment(plugin) {
		if err := os.Setenv(key, value); err != nil {
			return nil, fmt.Errorf("backend xla: set %s: %w", key, err)
		}
	}
	klog.SetLogger(logr.Discard()) // the error has the same text
	defer klog.ClearLogger()
	b, err := xla.New(config)
	switch {
	case err != nil && !filepath.IsAbs(plugin) && len(findPlugins()) == 0:
		return nil, fmt.Errorf("backend xla: %w: %s", noPluginError(), xlaHowToGet)
	case err != nil:
		return nil, fmt.Errorf("backend xla: open %q: %s", config, oneLine(err.Error()))
	}
	return &Engine{Backend: b, owner: b, Name: "xla", Wants: Wants{BFloat16: true, LiveGraphs: 32}}, nil
}

func statusXLA() Status {
	found := findPlugins()
	if len(found) == 0 {
		return Status{Name: "xla", Detail: noPluginError().Error(), HowToGet: xlaHowToGet}
	}
	detail := "PJRT, " + strings.Join(found, ", ") + " (execution untested)"
	return Status{Name: "xla", Present: true, Untried: true, Detail: detail}
}
