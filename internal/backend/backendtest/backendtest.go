// Package backendtest opens engines for tests.
package backendtest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/testkit/need"
)

// quickFlags make XLA compile about five times as fast, with cpuFlags. Programs are slower and their sums are rounded in
// other places. A plugin that does not know a flag ends the process.
const (
	quickFlags = "--xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1"
	cpuFlags   = " --xla_cpu_use_fusion_emitters=false" // unknown to xla:amx
)

// The variables must be there before XLA reads its own, which it does once, and be passed on to child processes. Tests
// keep compiled programs for the next run, apart from the user's.
func init() {
	if _, has := os.LookupEnv("POSTTRAIN_XLA_CACHE"); !has {
		os.Setenv("POSTTRAIN_XLA_CACHE", programs())
	}
	if _, has := os.LookupEnv("XLA_FLAGS"); !has && need.Required("xla") && !need.Required("slow") {
		flags := quickFlags + cpuFlags
		for _, s := range backend.List() {
			if s.Name == "xla:amx" {
				flags = quickFlags
			}
		}
		os.Setenv("XLA_FLAGS", flags)
	}
}

func programs() string {
	cache, err := os.UserCacheDir()
	if err != nil || !filepath.IsAbs(cache) {
		return "off"
	}
	return filepath.Join(cache, "posttrain", "xla-of-tests")
}

// AllVariants reports whether a test has time for what it also shows in another form, such as one objective of many. On
// xla, where each form is compiled for seconds, only make slow has it.
func AllVariants(t testing.TB, e *backend.Engine) bool {
	t.Helper()
	if e.Name != "xla" || need.Required("slow") {
		return true
	}
	need.Miss(t, "slow", "this form on xla")
	return false
}

// Some gives the forms of a test that an engine tries. The go engine tries all. On the others each form is a program that
// is compiled for seconds: there case i tries one, and all cases together try all. In make slow every case tries all.
func Some[F any](t testing.TB, e *backend.Engine, i int, forms ...F) []F {
	t.Helper()
	if e.Name == "go" || need.Required("slow") {
		return forms
	}
	need.Miss(t, "slow", "other forms on "+e.Name)
	return []F{forms[i%len(forms)]}
}

// Engines opens the go engine, onnx if its library is found, and xla if it is required. The test's cleanup closes them.
func Engines(t testing.TB) []*backend.Engine {
	t.Helper()
	engines, names := []*backend.Engine{Go(t)}, []string{"onnx"}
	if need.Required("xla") {
		names = append(names, "xla")
	} else {
		need.Miss(t, "xla", "on xla")
	}
	for _, name := range names {
		if e, missing := open(t, name); e != nil {
			engines = append(engines, e)
		} else {
			need.Miss(t, name, missing)
		}
	}
	return engines
}

func Go(t testing.TB) *backend.Engine {
	t.Helper()
	e, err := backend.Open("go")
	return opened(t, e, err)
}

// ONNX opens the onnx engine, or skips the test if its library is missing.
func ONNX(t testing.TB) *backend.Engine {
	t.Helper()
	e, missing := open(t, "onnx")
	if e == nil {
		need.Lack(t, "onnx", missing)
	}
	return e
}

// XLA opens the xla engine, or skips the test if it is not required.
func XLA(t testing.TB) *backend.Engine {
	t.Helper()
	need.Ask(t, "xla")
	e, missing := open(t, "xla")
	if e == nil {
		need.Lack(t, "xla", missing)
	}
	return e
}

// Mesh opens xla with the devices of a mesh, or skips the test if xla is not required.
func Mesh(t testing.TB, m backend.Mesh) *backend.Engine {
	t.Helper()
	need.Ask(t, "xla")
	e, err := backend.OpenMesh("xla:cpu", m)
	return opened(t, e, err)
}

// open opens an engine. Without its library it returns nil and what is missing.
func open(t testing.TB, name string) (e *backend.Engine, missing string) {
	t.Helper()
	for _, s := range backend.List() {
		if s.Name == name && !s.Present { // a plugin that is present has its own name
			return nil, s.Detail
		}
	}
	e, err := backend.Open(name)
	return opened(t, e, err), ""
}

// opened closes an engine when the test ends.
func opened(t testing.TB, e *backend.Engine, err error) *backend.Engine {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// Each runs a test on every engine of Engines.
func Each(t *testing.T, test func(t *testing.T, e *backend.Engine)) {
	t.Helper()
	for _, e := range Engines(t) {
		t.Run(e.Name, func(t *testing.T) { test(t, e) })
	}
}
