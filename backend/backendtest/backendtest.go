// Package backendtest opens engines for tests.
package backendtest

import (
	"os"
	"testing"

	"github.com/posttrain/posttrain/backend"
)

// RequireONNX is the environment variable that makes tests fail instead of skip if ONNX Runtime's library is missing.
const RequireONNX = "POSTTRAIN_REQUIRE_ONNX"

// Engines opens the go engine and, if its library is found, onnx. The test's cleanup closes them.
func Engines(t testing.TB) []*backend.Engine {
	t.Helper()
	engines := []*backend.Engine{Go(t)}
	if e := openONNX(t); e != nil {
		engines = append(engines, e)
	} else {
		t.Log("tested without onnx: its library is not installed (scripts/install-onnxruntime.sh)")
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
	e := openONNX(t)
	if e == nil {
		t.Skip("ONNX Runtime's library is not installed (scripts/install-onnxruntime.sh)")
	}
	return e
}

// openONNX opens the onnx engine. It returns nil if the library is missing and RequireONNX is not set.
func openONNX(t testing.TB) *backend.Engine {
	t.Helper()
	for _, s := range backend.List() {
		if s.Name == "onnx" && !s.Present {
			if os.Getenv(RequireONNX) == "1" {
				t.Fatalf("%s=1: %s", RequireONNX, s.Detail)
			}
			return nil
		}
	}
	e, err := backend.Open("onnx")
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
