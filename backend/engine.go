package backend

import (
	"fmt"
	"os"
	"strings"

	"github.com/gomlx/compute"
)

// Wants says how an engine would like to be fed. It is the only thing that other packages may ask of it.
type Wants struct {
	// HostUpdate: weights and moments live in host buffers shared with the engine ([Engine.SharedFloat32]) and are
	// updated by Go loops. Otherwise the update is a graph with donated buffers.
	HostUpdate bool
	// HostRows: rows of the embedding and head tables are copied by the host and are plain inputs, their gradients are
	// outputs which the host adds to the table's gradient. Otherwise the graph gathers from the table.
	HostRows bool
	// BFloat16: the engine computes in bfloat16, and gains by it.
	BFloat16 bool
	// Tokens is how many tokens a program of a training step is best given at once: more gain nothing and take memory and
	// padding. 0: as many as there are.
	Tokens int
	// LiveGraphs is how many compiled programs one [Cache] keeps: on onnx each holds its own arena.
	LiveGraphs int
}

// Engine carries out programs. Graphs are built on it as on any compute.Backend.
type Engine struct {
	compute.Backend
	Name  string // go, onnx or xla
	Wants Wants

	owner compute.Backend // what buffers give as their backend: Backend itself, or the one it decorates
}

const specs = "auto, go, onnx, onnx:LIBRARY, xla, xla:cpu, xla:cuda or xla:PLUGIN"

// Open opens the engine of a spec: auto, go, onnx[:LIBRARY] or xla[:cpu|:cuda|:PLUGIN[,options]].
//
// auto (and "") is onnx where its library is found, go otherwise; xla only runs when asked for.
// Nothing is downloaded: what is missing is an error that says how to get it.
func Open(spec string) (e *Engine, err error) {
	defer recovered(&err, "open "+spec)
	name, arg, hasArg := strings.Cut(spec, ":")
	switch {
	case hasArg && arg == "":
		return nil, fmt.Errorf("backend %q: nothing after the colon: want %s", spec, specs)
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

// Auto is the name of the engine that auto opens here: a run that says auto writes this into its config, so that it is
// resumed on the engine which it was started on. It is onnx also where the environment names a library that is not there:
// opening it is an error then, since the go engine is slower by far, and nobody would know why.
func Auto() string {
	if onnxBuilt && os.Getenv(onnxLibraryEnv) != "" || statusONNX().Present {
		return "onnx"
	}
	return "go"
}

// openAuto takes ONNX Runtime where its library is found in the usual places, or should be. A library that does not load
// is an error, as in [Auto].
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

// newEngine describes an engine whose graphs are built on b and whose buffers name owner as theirs.
func newEngine(name string, b, owner compute.Backend, w Wants) *Engine {
	return &Engine{Backend: b, Name: name, Wants: w, owner: owner}
}

// Close frees the engine. Its programs and buffers must not be used afterwards.
func (e *Engine) Close() { e.Finalize() }

// Status says whether an engine can be opened here.
type Status struct {
	Name     string // as in a spec
	Present  bool   // built in, or its library's file is found
	Untried  bool   // the file was found and not loaded: that would run its code
	Detail   string // version and place, or what is missing
	HowToGet string // one line; empty where present
}

// State is the status in a word: present, found (a file, which was not loaded) or missing.
func (s Status) State() string {
	switch {
	case !s.Present:
		return "missing"
	case s.Untried:
		return "found"
	}
	return "present"
}

// List says of go, onnx and xla which are present, which are found, which are missing and how to get them. It loads no
// library.
func List() []Status {
	return []Status{statusGo(), statusONNX(), statusXLA()}
}
