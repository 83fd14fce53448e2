// Package backendtest opens the engines that a test can use here.
package backendtest

import (
	"os"
	"testing"

	"github.com/posttrain/posttrain/backend"
)

// RequireONNX is the environment variable that makes tests fail, not skip, where ONNX Runtime's library is missing.
const RequireONNX = "POSTTRAIN_REQUIRE_ONNX"

// Engines opens the go engine and, where its library is found, onnx; they are closed with the test.
func Engines(t testing.TB) []*backend.Engine {
	t.Helper()
	engines := []*backend.Engine{Go(t)}
	if e := open(t); e != nil {
		engines = append(engines, e)
	} else {
		t.Log("onnx left out: its library is not installed (scripts/install-onnxruntime.sh)")
	}
	return engines
}

// Go opens the go engine.
func Go(t testing.TB) *backend.Engine {
	t.Helper()
	e, err := backend.Open("go")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// ONNX opens the onnx engine and skips the test where its library is missing.
func ONNX(t testing.TB) *backend.Engine {
	t.Helper()
	e := open(t)
	if e == nil {
		t.Skip("ONNX Runtime's library is not installed (scripts/install-onnxruntime.sh)")
	}
	return e
}

// open gives the onnx engine, or nil where its library is missing and need not be there.
func open(t testing.TB) *backend.Engine {
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

// Each runs a test on every engine at hand.
func Each(t *testing.T, test func(t *testing.T, e *backend.Engine)) {
	t.Helper()
	for _, e := range Engines(t) {
		t.Run(e.Name, func(t *testing.T) { test(t, e) })
	}
}
