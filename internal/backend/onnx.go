//go:build cgo && linux

package backend

import (
	"fmt"
	"maps"
	"os"
	"sync"

	"github.com/gomlx/compute"
	onnxbackend "github.com/gomlx/compute-onnx"

	"github.com/posttrain/posttrain/internal/config/fault"
)

const onnxBuilt = true // this program can load ONNX Runtime

// onnxLibrary is the library that this process has loaded; a process can load only one.
var onnxLibrary struct {
	sync.Mutex
	path  string
	spins bool // its threads wait for each other awake
}

// openONNX opens ONNX Runtime's CPU engine with the library at path; "" searches for it.
func openONNX(path string) (*Engine, error) {
	found, err := findONNXLibrary(path)
	if err != nil {
		return nil, fmt.Errorf("backend onnx: ONNX Runtime's library is missing (%w): %s", err, howToGetONNX(path))
	}
	b, err := loadONNX(found)
	if err != nil {
		return nil, err
	}
	wants := Wants{SharedMemory: true, HostRows: true, Tokens: 1024, Overhead: 64, Compile: 6e9, LiveGraphs: 6,
		KeepsUnpacked: true}
	detail := fmt.Sprintf("ONNX Runtime %s, CPU, %s", b.Version(), found)
	if onnxLibrary.spins {
		detail += ", slow beside other work: its threads spin"
	}
	return &Engine{Backend: &onnxEngine{Backend: b}, owner: b, Name: "onnx", Detail: detail, Wants: wants}, nil
}

// loadONNX opens the library at path. compute-onnx would download a library if it found none. That is switched off, and
// it does not search either, since it first reads the environment variable that is set here.
func loadONNX(path string) (*onnxbackend.Backend, error) {
	onnxLibrary.Lock()
	defer onnxLibrary.Unlock()
	if onnxLibrary.path != "" && onnxLibrary.path != path {
		return nil, fmt.Errorf("backend onnx: %s is already loaded: one process cannot load %s as well",
			onnxLibrary.path, path)
	}
	onnxbackend.EnableAutoInstall(false)
	_ = os.Setenv("ORT_DISABLE_TELEMETRY", "1") // from 1.29 on it sends names and hashes of graphs to its makers
	restore := setenv(onnxLibraryEnv, path)
	defer restore()
	b, err := onnxbackend.New("cpu")
	if err != nil {
		return nil, fmt.Errorf("backend onnx: load %s: %s", path, fault.OneLine(err.Error()))
	}
	if onnxLibrary.path == "" {
		onnxLibrary.spins = !spareProcessors(path)
	}
	onnxLibrary.path = path
	return b.(*onnxbackend.Backend), nil
}

// setenv sets an environment variable. restore sets it back.
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

// onnxEngine decorates compute-onnx's engine: its graphs are faster, and they refuse what ONNX Runtime gets wrong (see
// [onnxFunction]).
type onnxEngine struct{ *onnxbackend.Backend }

func (e *onnxEngine) Builder(name string) compute.Builder {
	b := e.Backend.Builder(name).(*onnxbackend.Builder)
	return &onnxBuilder{Builder: b, main: &onnxFunction{b.MainFunction(), map[*onnxbackend.Node]product{},
		map[*onnxbackend.Node]*onnxbackend.Node{}}}
}

// Capabilities are compute-onnx's with two changes. Variables never become constants of the graph, which would keep the
// values that they have when it is compiled. The fused attention is removed: for grouped queries it repeats the keys'
// heads in the wrong order, and it misreads masks if the length equals the number of heads.
func (e *onnxEngine) Capabilities() compute.Capabilities {
	c := e.Backend.Capabilities()
	c.PreferConstantsForVariables = false
	c.Operations = maps.Clone(c.Operations)
	delete(c.Operations, compute.OpTypeFusedScaledDotProductAttention)
	delete(c.Operations, compute.OpTypeFusedScaledDotProductAttentionVJP)
	return c
}

// FusedRMSNorm says that this engine reads a FusedLayerNorm of epsilon -e as an RMSNorm of epsilon e, for which GoMLX
// has no operation.
func (e *onnxEngine) FusedRMSNorm() bool { return true }

// onnxBuilder decorates compute-onnx's builder: its operations go to the decorated main function.
type onnxBuilder struct {
	*onnxbackend.Builder
	main *onnxFunction
}

func (b *onnxBuilder) Main() compute.Function { return b.main }
