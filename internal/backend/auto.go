package backend

import (
	"fmt"
	"os"
	"regexp"
)

// Job is what auto's choice depends on beside the machine; the zero value is a job of which nothing is known.
type Job struct {
	// BFloat16: the model is stored in bfloat16, so that it may be computed in it. Must: the engine has to know bfloat16.
	BFloat16, Must bool
	// Sampling: answers are sampled too, or alone.
	Sampling   bool
	Parameters int // of the model
}

// machine says which engines are here.
type machine struct {
	gpu  bool // an NVIDIA GPU, and a plugin of xla for it
	amx  bool // a processor with AMX's bfloat16 products, and the plugin of xla that uses them
	onnx bool
	cpu  bool // a plugin of xla for CPUs
}

// choice is an engine and why it is chosen.
type choice struct{ spec, why string }

// largeModel is the number of parameters from which the programs of xla:amx, each compiled for seconds, pay.
const largeModel = 20e6

// choose gives the engines that auto tries, in their order. docs/speed.md has the measurements.
func choose(j Job, m machine) (all []choice) {
	add := func(here bool, spec, why string) {
		if here {
			all = append(all, choice{spec, why})
		}
	}
	add(m.gpu, "xla:cuda", "a GPU and a plugin for it are here")
	add(m.amx && (j.Must || j.BFloat16 && !j.Sampling && j.Parameters >= largeModel), "xla:amx",
		"the fastest here to train large models in bfloat16")
	add(m.cpu && j.Must, "xla:cpu", "it computes in bfloat16")
	add(m.onnx, "onnx", "the fastest here in float32, and compiles quickly")
	add(m.cpu && !j.Must, "xla:cpu", "faster than go; ONNX Runtime, which compiles quicker, is not here")
	add(m.amx && len(all) == 0, "xla:amx", "faster than go; the engines that are faster in float32 are not here")
	add(true, "go", "no other engine is here")
	return all
}

// thisMachine looks for files and loads none.
func thisMachine() machine {
	has := func(path string) bool { _, err := os.Stat(path); return err == nil }
	cpuinfo, _ := os.ReadFile("/proc/cpuinfo")
	return machine{
		gpu:  findPlugin("cuda") != "" && has("/dev/nvidiactl"),
		amx:  findPlugin("amx") != "" && regexp.MustCompile(`\bamx_bf16\b`).Match(cpuinfo),
		onnx: onnxBuilt && (os.Getenv(onnxLibraryEnv) != "" || statusONNX().Present),
		cpu:  onnxBuilt && findPlugin("cpu") != "",
	}
}

// OpenAuto opens the fastest engine of this machine for a job, by the rules of docs/speed.md; see [Engine.Why] and
// [Engine.Warning].
func OpenAuto(j Job) (*Engine, error) {
	_, e, err := openFastest(j)
	return e, err
}

// Auto gives the spec of the engine that auto opens, which it tries, and why. A run stores it in its config, so that it
// resumes on the engine that it started on. The warning is [Engine.Warning]'s. If the environment names a library that
// does not exist, Auto is still onnx: opening it is then an error, since the user wants it.
func Auto(j Job) (spec, why string, warning error) {
	spec, e, err := openFastest(j)
	if err != nil {
		return "onnx", onnxLibraryEnv + " names it", nil
	}
	defer e.Close()
	return spec, e.Why, e.Warning
}

func openFastest(j Job) (spec string, e *Engine, err error) {
	var failed error
	for _, c := range choose(j, thisMachine()) {
		if e, err = tryOpen(c.spec); err != nil {
			if c.spec == "onnx" && !statusONNX().Present {
				return "", nil, fmt.Errorf("%w (the backend go needs no library)", err)
			}
			failed = err
			continue
		}
		if e.Why = c.why; failed != nil {
			e.Why = "the faster ones do not open"
			e.Warning = fmt.Errorf("%w: the slower backend %s is used instead", failed, c.spec)
		}
		return c.spec, e, nil
	}
	return "", nil, failed
}

// tryOpen opens an engine; a library that is too old or damaged may panic.
func tryOpen(spec string) (e *Engine, err error) {
	defer catchPanic(&err, "open "+spec)
	return Open(spec)
}
