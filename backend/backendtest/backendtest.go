// Package backendtest opens engines for tests.
package backendtest

import (
	"os"
	"testing"

	"github.com/posttrain/posttrain/backend"
)

// required are the environment variables that make tests fail instead of skip if an engine's library is missing. Tests
// run on xla only if its variable is 1, or all.
var required = map[string]string{"onnx": "POSTTRAIN_REQUIRE_ONNX", "xla": "POSTTRAIN_REQUIRE_XLA"}

// quickFlags make XLA compile about five times as fast, with cpuFlags. Programs are slower and their sums are rounded in
// other places. A plugin that does not know a flag ends the process.
const (
	quickFlags = "--xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1"
	cpuFlags   = " --xla_cpu_use_fusion_emitters=false" // unknown to xla:amx
)

// The variables must be there before XLA reads its own, which it does once, and be passed on to child processes. Tests
// leave the user's compiled programs alone.
func init() {
	if _, has := os.LookupEnv("POSTTRAIN_XLA_CACHE"); !has {
		os.Setenv("POSTTRAIN_XLA_CACHE", "off")
	}
	if _, has := os.LookupEnv("XLA_FLAGS"); !has && os.Getenv(required["xla"]) == "1" {
		flags := quickFlags + cpuFlags
		for _, s := range backend.List() {
			if s.Name == "xla:amx" {
				flags = quickFlags
			}
		}
		os.Setenv("XLA_FLAGS", flags)
	}
}

// isRequired reports whether tests fail instead of skip if an engine's library is missing.
func isRequired(name string) bool {
	value := os.Getenv(required[name])
	return value == "1" || value == "all"
}

// AllVariants reports whether a test has time for what it also shows in another form, such as one objective of many. On
// xla, where each form is compiled for seconds, only if POSTTRAIN_REQUIRE_XLA is all.
func AllVariants(e *backend.Engine) bool {
	return e.Name != "xla" || os.Getenv(required["xla"]) == "all"
}

// Some gives the forms of a test that an engine tries. The go engine tries all. On the others each form is a program that
// is compiled for seconds: there case i tries one, and all cases together try all. If POSTTRAIN_REQUIRE_XLA is all, every
// case tries all.
func Some[F any](e *backend.Engine, i int, forms ...F) []F {
	if e.Name == "go" || os.Getenv(required["xla"]) == "all" {
		return forms
	}
	return []F{forms[i%len(forms)]}
}

// Engines opens the go engine, onnx if its library is found, and xla if it is required. The test's cleanup closes them.
func Engines(t testing.TB) []*backend.Engine {
	t.Helper()
	engines, names := []*backend.Engine{Go(t)}, []string{"onnx"}
	if isRequired("xla") {
		names = append(names, "xla")
	}
	for _, name := range names {
		if e, missing := open(t, name); e != nil {
			engines = append(engines, e)
		} else {
			t.Logf("tested without %s: %s", name, missing)
		}
	}
	return engines
}

func Go(t testing.TB) *backend.Engine {
	t.Helper()
	e, err := backend.Open("go")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// ONNX opens the onnx engine, or skips the test if its library is missing.
func ONNX(t testing.TB) *backend.Engine {
	t.Helper()
	e, missing := open(t, "onnx")
	if e == nil {
		t.Skip(missing)
	}
	return e
}

// XLA opens the xla engine, or skips the test if it is not required.
func XLA(t testing.TB) *backend.Engine {
	t.Helper()
	if !isRequired("xla") {
		t.Skipf("%s is not set", required["xla"])
	}
	e, _ := open(t, "xla")
	return e
}

// Mesh opens xla with the devices of a mesh, or skips the test if xla is not required.
func Mesh(t testing.TB, m backend.Mesh) *backend.Engine {
	t.Helper()
	if !isRequired("xla") {
		t.Skipf("%s is not set", required["xla"])
	}
	e, err := backend.OpenMesh("xla:cpu", m)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// open opens an engine. It returns nil and what is missing if there is no library and the tests do not require it.
func open(t testing.TB, name string) (e *backend.Engine, missing string) {
	t.Helper()
	for _, s := range backend.List() {
		if s.Name == name && !s.Present { // a plugin that is present has its own name
			if key := required[name]; isRequired(name) {
				t.Fatalf("%s=%s: %s", key, os.Getenv(key), s.Detail)
			}
			return nil, s.Detail + ": " + s.HowToGet
		}
	}
	e, err := backend.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e, ""
}

// Each runs a test on every engine of Engines.
func Each(t *testing.T, test func(t *testing.T, e *backend.Engine)) {
	t.Helper()
	for _, e := range Engines(t) {
		t.Run(e.Name, func(t *testing.T) { test(t, e) })
	}
}
