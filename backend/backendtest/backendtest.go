// Package backendtest opens engines for tests.
package backendtest

import (
	"os"
	"testing"

	"github.com/posttrain/posttrain/backend"
)

// required are the environment variables that make tests fail instead of skip if an engine's library is missing. Tests
// run on xla only if its variable is 1: compiling their programs takes minutes.
var required = map[string]string{"onnx": "POSTTRAIN_REQUIRE_ONNX", "xla": "POSTTRAIN_REQUIRE_XLA"}

// Engines opens the go engine, onnx if its library is found, and xla if it is required. The test's cleanup closes them.
func Engines(t testing.TB) []*backend.Engine {
	t.Helper()
	engines, names := []*backend.Engine{Go(t)}, []string{"onnx"}
	if os.Getenv(required["xla"]) == "1" {
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
	if os.Getenv(required["xla"]) != "1" {
		t.Skipf("%s is not 1", required["xla"])
	}
	e, _ := open(t, "xla")
	return e
}

// open opens an engine. It returns nil and what is missing if there is no library and the tests do not require it.
func open(t testing.TB, name string) (e *backend.Engine, missing string) {
	t.Helper()
	for _, s := range backend.List() {
		if s.Name == name && !s.Present {
			if key := required[name]; os.Getenv(key) == "1" {
				t.Fatalf("%s=1: %s", key, s.Detail)
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
