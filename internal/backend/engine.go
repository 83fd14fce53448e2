package backend

import (
	"fmt"
	"strings"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/distributed"
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
	// TF32: products of float32 keep 10 bits of each factor's 23.
	TF32 bool
	// Tokens is the best number of tokens for one program of a training step. More are no faster, but cost memory and
	// padding. 0: all tokens of the step.
	Tokens int
	// Overhead is the number of tokens that take as long as what every run of such a program costs apart from its
	// tokens: reading the weights, and adding to their gradients. Programs of few shapes are chosen with it.
	Overhead int
	// Compile is the number of tokens that take as long as compiling such a program, times the parameters of the model
	// for each of its layers.
	Compile float64
	// Shapes is the most different shapes of batches in a run, since each is compiled. 0: any number.
	Shapes int
	// LiveGraphs is the most compiled programs that one [Cache] keeps.
	LiveGraphs int
	// Room is how many bytes the values of a moment may take, such as the logits of a chunk; 0: as few as there are
	// without it. Of many small pieces each starts kernels, and adds to sums that are read and written.
	Room int
	// Collected: values are Go's, and the collector frees them.
	Collected bool
	// KeepsUnpacked: weights of few bits take more memory than float32 ones, since what unpacks them is kept.
	KeepsUnpacked bool
	// Widens: values of 16 bits are computed, and kept, in float32.
	Widens bool
}

// Engine runs programs. Graphs are built on it as on any compute.Backend.
type Engine struct {
	compute.Backend
	Name   string // go, onnx or xla
	Detail string // its library: version, devices, place
	Wants  Wants
	// Why says why auto chose this engine; "" if it did not. Warning says why it did not open a faster one that is
	// installed; nil without a reason.
	Why     string
	Warning error

	listen func(notice func(line string)) // nil: it has none
	hint   string                         // how to make it faster; "" if there is no way

	rows   bool   // see builderHolder.WantsRows
	gpu    bool   // see builderHolder.OnGPU
	memory uint64 // of its device, in bytes; 0: it uses the machine's

	owner compute.Backend // the backend that buffers name: Backend itself, or the one that it decorates

	// Mesh is of several devices on which every program runs; nil: one device.
	Mesh   *distributed.DeviceMesh
	Shard  Shard
	failed *failure // of a program on the mesh; nil without a mesh

	target *target // the devices for which programs are compiled, if they are not there; nil: the engine's own
}

const specs = "auto, go, onnx, onnx:LIBRARY, xla, xla:cpu, xla:cuda or xla:PLUGIN"

// Open opens the engine of a spec: auto, go, onnx[:LIBRARY] or xla[:cpu|:cuda|:PLUGIN[,options]].
//
// auto (or "") is [OpenAuto]'s engine for a job of which nothing is known. Nothing is downloaded: the error for a
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
		return OpenAuto(Job{})
	case "go":
		return openGo()
	case "onnx":
		return openONNX(arg)
	case "xla":
		return openXLA(arg, 1)
	}
	return nil, fmt.Errorf("backend %q: unknown: want %s", spec, specs)
}

// Absent is the device for which the engine compiles programs that it cannot run, since it is not there; nil: it is.
func (e *Engine) Absent() *Device {
	if e.target == nil {
		return nil
	}
	return &e.target.Device
}

// Memory is what the engine's device has, in bytes, whatever is in use: so that what depends on it repeats.
func (e *Engine) Memory() uint64 {
	if e.memory > 0 {
		return e.memory
	}
	return HostMemory()
}

// OwnsMemory says that the engine's device has memory of its own, apart from the machine's.
func (e *Engine) OwnsMemory() bool { return e.memory > 0 }

// Room is what a run can take now of the engine's memory, where the process has some of the machine's already. What the
// machine has free is no bound for a device with memory of its own.
func (e *Engine) Room(process uint64) uint64 {
	if e.OwnsMemory() {
		return e.memory
	}
	return min(e.Memory(), FreeMemory()+process)
}

// Listen sends what the user should know of later work, such as a broken file of compiled programs, to a function, line
// by line.
func (e *Engine) Listen(notice func(line string)) {
	if e.listen != nil {
		e.listen(notice)
	}
}

// Report says why auto chose the engine, if it did, and warns of a faster one that is installed and cannot be used. What
// the engine notices later is a warning, too.
func (e *Engine) Report(say, warn func(format string, args ...any)) {
	e.Listen(func(line string) { warn("%s", line) })
	if e.Why != "" {
		say("engine %s: %s", e.Name, e.Why)
	}
	if e.Warning != nil {
		warn("%v", e.Warning)
	}
	if e.hint != "" {
		say("engine %s: %s", e.Name, e.hint)
	}
}

// Close frees the engine. Its programs and buffers must not be used afterwards.
func (e *Engine) Close() {
	if e.failed.err() == nil {
		e.Finalize()
	}
}

// Status says whether an engine can be opened on this machine.
type Status struct {
	Name     string // a spec that opens it
	Present  bool   // built in, or its library's file is found
	Untried  bool   // the file was found but not loaded, since loading runs its code; Load does
	Broken   bool   // the file was found, and Load failed
	Detail   string // version and place, or what is missing
	HowToGet string // one line; empty if present
}

// State is the status in one word: present, found (a file that was not loaded), broken or missing.
func (s Status) State() string {
	switch {
	case s.Broken:
		return "broken"
	case !s.Present:
		return "missing"
	case s.Untried:
		return "found"
	}
	return "present"
}

// Load opens the engine if its file was found, and says what it is or why it does not open.
func (s Status) Load() Status {
	if !s.Untried {
		return s
	}
	e, err := Open(s.Name)
	if err != nil {
		engine, _, _ := strings.Cut(s.Name, ":")
		return Status{Name: s.Name, Broken: true, Detail: strings.TrimPrefix(err.Error(), "backend "+engine+": ")}
	}
	defer e.Close()
	return Status{Name: s.Name, Present: true, Detail: e.Detail}
}

// List gives the status of go, of onnx, and of each plugin of xla. It loads no library.
func List() []Status {
	return append([]Status{statusGo(), statusONNX()}, statusesXLA()...)
}
