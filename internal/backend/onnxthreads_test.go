//go:build cgo && linux

package backend

import (
	"os"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/internal/testkit/need"
)

// countThreads counts the threads of this process.
func countThreads(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/task")
	need.Linux(t, err)
	return len(entries)
}

// A program of one thread reads its inputs again in each run, like any other, and starts no thread.
func TestOneThread(t *testing.T) {
	e := openTestONNX(t)
	build := func(g *graph.Graph) []*graph.Node {
		x := graph.Parameter(g, "x", shapes.Make(dtypes.Float32, 2, 3))
		return []*graph.Node{graph.MatMul(x, graph.Transpose(x, 0, 1)), graph.AddScalar(x, 1)}
	}
	before := countThreads(t)
	var p *Program
	for range 8 {
		var err error
		if p, err = e.Compile("one", build, OneThread); err != nil {
			t.Fatal(err)
		}
		defer p.Close()
	}
	if names, in := p.Inputs(); len(in) != 1 || names[0] != "x" || len(p.Outputs()) != 2 {
		t.Errorf("inputs %v %v, outputs %v", names, in, p.Outputs())
	}
	x, view, err := e.SharedFloat32(2, 3)
	if err != nil {
		t.Fatal(err)
	}
	defer FinalizeAll(x)
	for i := range 3 {
		view[5] = float32(i)
		out, err := p.Run([]compute.Buffer{x}, nil)
		if err != nil {
			t.Fatal(err)
		}
		values, err := Floats(out[0])
		if err != nil || values[3] != float32(i*i) {
			t.Errorf("run %d: %v, %v", i, values, err)
		}
		FinalizeAll(out...)
	}
	if after := countThreads(t); after > before+3 { // Go may start some for its calls
		t.Errorf("%d threads before, %d after, want at most 3 more", before, after)
	}
}
