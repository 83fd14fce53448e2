package backend

import (
	"fmt"
	"os"
	"strings"

	"github.com/gomlx/compute"
)

// Wants says how to use an engine well. It is the only thing that other packages may ask about the engine.
type Wants struct {
	// SharedMemory: the engine reads host buffers where they are ([Engine.SharedFloat32]). Weights, moments and the
	// sampler's cache are such buffers, and Go loops update them. Otherwise the update is a graph with donated buffers.
	SharedMemory bool
	// HostRows: the host copies the needed rows of the embedding and head tables into inputs, and adds the gradients of
	// these rows, which are outputs, to the table's gradient. Otherwise the graph gathers from the table.
	HostRows bool
	// BFloat16: the engine computes in bfloat16, and is faster so.
	BFloat16 bool
	// Tokens is the best number of tokens for one program of a training step. More are no faster, but cost memory and
	// padding. 0: all tokens of the step.
	Tokens int
	// LiveGraphs is the number of compiled programs that one [Cache] keeps. On onnx each holds its own arena.
	LiveGraphs int
}

// Engine runs programs. Graphs are built on it as on any compute.Backend.
type Engine struct {
	compute.Backend
	Name  string // go, onnx or xla
	Wants Wants

	owner compute.Backend // the backend that buffers name: Backend itself, or the one that it decorates
}

const specs = "auto, go, onnx, onnx:LIBRARY, xla, xla:cpu, xla:cuda or xla:PLUGIN"

// Open opens the engine of a spec: auto, go, onnx[:LIBRARY] or xla[:cpu|:cuda|:PLUGIN[,options]].
//
// auto (or "") is onnx if its library is found and go otherwise, never xla. Nothing is downloaded: the error for a
// missing library says how to get it.
func Open(spec string) (e *Engine, err error) {
	defer catchPanic(&err, "open "+spec)
	name, arg, hasArg := strings.Cut(spec, ":")
	switch {
	case hasArg && arg == "":
		return nil, fmt.Errorf("backend %q: found nothing after the colon, want %s", spec, specs)
	case hasArg && (name == "go" || name == "auto"):
		return nil, fmt.Errorf("backend %q: %s takes no argument: want %s", spec, name, specs)
	}
	switch name {
	case "", "auto":
		return openAuto()
	case "go":
		return openGo()
	case "onnx":
		return openONNX(arg)
	case "xla":
		return openXLA(arg)
	}
	return nil, fmt.Errorf("backend %q: unknown: want %s", spec, specs)
}

// Auto is the name of the engine that auto opens on this machine. A run stores it in its config, so that it resumes on
// the engine that it started on. If the environment names a library that does not exist, Auto is still onnx: opening it
// is then an error, since the go engine would silently be much slower.
func Auto() string {
	if onnxBuilt && os.Getenv(onnxLibraryEnv) != "" || statusONNX().Present {
		return "onnx"
	}
	return "go"
}

func openAuto() (*Engine, error) {
	if Auto() == "go" {
		return openGo()
	}
	e, err := openONNX("")
	if err != nil {
		return nil, fmt.Errorf("%w (the backend go needs no library)", err)
	}
	return e, nil
}

// Close frees the engine. Its programs and buffers must not be used afterwards.
func (e *Engine) Close() { e.Finalize() }

// Status says whether an engine can be opened on this machine.
type Status struct {
	Name     string // as in a spec
	Present  bool   // built in, or its library's file is found
	Untried  bool   // the file was found but not loaded, since loading runs its code
	Detail   string // version and place, or what is missing
	HowToGet string // one line; empty if present
}

// State is the status in one word: present, found (a file that was not loaded) or missing.
func (s Status) State() string {
	switch {
	case !s.Present:
		return "missing"
	case s.Untried:
		return "found"
	}
	return "present"
}

// List gives the status of go, onnx and xla. It loads no library.
func List() []Status {
	return []Status{statusGo(), statusONNX(), statusXLA()}
}
