package backend

import "testing"

// TestNeeds: by hand, of weights, moments and gradients of 1 GB and a program of 200 MB alive.
func TestNeeds(t *testing.T) {
	program := func(written int, runs float64) []Use {
		return []Use{{Sketch{Alive: 200e6, Fused: 150e6, Written: written, Nodes: 500, Kernels: 100}, runs}}
	}
	onnx := &Engine{Wants: Wants{SharedMemory: true, LiveGraphs: 2}}
	goEngine, xla := &Engine{Wants: Wants{SharedMemory: true, Collected: true}}, &Engine{Wants: Wants{Widens: true}}
	for _, c := range []struct {
		name string
		e    *Engine
		uses []Use
		want Needs
	}{
		// 0.024 of 10 GB written, and 25 MB
		{"a short run of go", goEngine, program(5e9, 2), Needs{200e6, 200e6, 265e6}},
		// 0.024 of 100 GB would be 2.4 GB, but the collector leaves no more than is alive: 1.2 GB
		{"a long run of go", goEngine, program(5e9, 20), Needs{200e6, 200e6, 1225e6}},
		// 1.5 of what is alive, less half of the gradients of 100 MB, and 26 MB for each of the two programs that are kept
		{"onnx", onnx, append(append(program(0, 1), program(0, 2)...), program(0, 3)...), Needs{250e6, 0, 52e6}},
		// 240 MB, and 0.6 MB for each of 100 kernels, however many runs and operations
		{"xla", xla, program(5e9, 20), Needs{150e6, 0, 300e6}},
	} {
		if got := c.e.Needs(1e9, 100e6, c.uses); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}
