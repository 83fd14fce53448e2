//go:build cgo && linux

package backend

import (
	"fmt"
	"os"
	"sync"

	onnxbackend "github.com/gomlx/compute-onnx"
)

// onnxBuilt says that this program can load ONNX Runtime.
const onnxBuilt = true

// loaded is the library that this process has opened: ONNX Runtime is loaded once.
var loaded struct {
	sync.Mutex
	path string
}

// openONNX opens ONNX Runtime's CPU engine with the library at path ("": the usual places).
func openONNX(path string) (*Engine, error) {
	found, err := findONNXLibrary(path)
	if err != nil {
		return nil, fmt.Errorf("backend onnx: ONNX Runtime's library is missing (%w): %s", err, howToGetONNX(path))
	}
	b, err := loadONNX(found)
	if err != nil {
		return nil, err
	}
	wants := Wants{HostUpdate: true, HostRows: true, Tokens: 1024, LiveGraphs: 6}
	return newEngine("onnx", &onnxEngine{Backend: b}, b, wants), nil
}

// loadONNX opens the library at path. compute-onnx downloads a library when it finds none: it is told not to, and
// never gets to look, since the path stands in the environment variable that it reads first.
func loadONNX(path string) (*onnxbackend.Backend, error) {
	loaded.Lock()
	defer loaded.Unlock()
	if loaded.path != "" && loaded.path != path {
		return nil, fmt.Errorf("backend onnx: %s is already loaded: one process cannot load %s as well", loaded.path, path)
	}
	onnxbackend.EnableAutoInstall(false)
	restore := setenv(onnxLibraryEnv, path)
	defer restore()
	b, err := onnxbackend.New("cpu")
	if err != nil {
		return nil, fmt.Errorf("backend onnx: load %s: %s", path, oneLine(err.Error()))
	}
	loaded.path = path
	return b.(*onnxbackend.Backend), nil
}

// setenv sets an environment variable and gives the function that puts back what was there.
func setenv(key, value string) (restore func()) {
	old, had := os.LookupEnv(key)
	_ = os.Setenv(key, value)
	return func() {
		if had {
			_ = os.Setenv(key, old)
		} else {
			_ = os.Unsetenv(key)
		}
	}
}

func statusONNX() Status {
	path, err := findONNXLibrary("")
	if err != nil {
		return Status{Name: "onnx", Detail: err.Error(), HowToGet: howToGetONNX("")}
	}
	return Status{Name: "onnx", Present: true, Untried: true, Detail: "ONNX Runtime, CPU, " + path}
}
