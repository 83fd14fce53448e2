//go:build cgo && linux

package backend

import (
	"errors"
	"testing"
	"unsafe"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/internal/testkit/need"
)

// TestDonatedMemoryIsUsedAgain: XLA writes the output where the donated input was. Without it a training run needs
// half as much memory again.
func TestDonatedMemoryIsUsedAgain(t *testing.T) {
	e := openTestXLA(t)
	p, err := e.Compile("add", func(g *graph.Graph) []*graph.Node {
		a := graph.Parameter(g, "a", shapes.Make(dtypes.Float32, 1000))
		return []*graph.Node{graph.Add(a, graph.Parameter(g, "b", shapes.Make(dtypes.Float32, 1000)))}
	}, DonateLast(1))
	expect.OK(t, err)
	defer p.Close()
	var in []compute.Buffer
	for range 2 {
		b := expect.Must(e.Float32(make([]float32, 1000), 1000))(t)
		in = append(in, b)
	}
	out := runDonated(t, p, in)
	if shape, _ := in[0].Shape(); !shape.Ok() {
		t.Error("an input that was not donated is gone")
	}
	FinalizeAll(in[0], out[0])
}

// runDonated runs a program whose output is in the memory of its last input.
func runDonated(t *testing.T, p *Program, in []compute.Buffer) []compute.Buffer {
	t.Helper()
	before := address(t, in[len(in)-1])
	out := expect.Must(p.Run(in, nil))(t)
	if address(t, out[0]) != before {
		t.Error("the output is in new memory: want that of the donated input")
	}
	return out
}

// TestADeviceOutOfMemory: one line, and a cause that callers know.
func TestADeviceOutOfMemory(t *testing.T) {
	e := openTestXLA(t)
	p, err := e.Compile("large", func(g *graph.Graph) []*graph.Node {
		x := graph.Parameter(g, "x", shapes.Make(dtypes.Float32, 1))
		return []*graph.Node{graph.BroadcastToDims(x, 1<<21, 1<<21)}
	})
	expect.OK(t, err)
	defer p.Close()
	x := expect.Must(e.Float32([]float32{1}, 1))(t)
	defer FinalizeAll(x)
	const want = "backend: run large on xla: the device is out of memory: Out of memory allocating 17592186044416 bytes"
	if _, err = p.Run([]compute.Buffer{x}, nil); !errors.Is(err, ErrMemory) || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
}

func openTestXLA(t *testing.T) *Engine {
	t.Helper()
	need.Ask(t, "xla")
	e := expect.Must(Open("xla:cpu"))(t)
	t.Cleanup(e.Close)
	return e
}

func address(t *testing.T, b compute.Buffer) unsafe.Pointer {
	t.Helper()
	flat := expect.Must(b.Data())(t)
	return unsafe.Pointer(unsafe.SliceData(flat.([]float32)))
}

// TestUpdatesAreInPlace: every output is written over its own input, whatever other outputs have its size.
func TestUpdatesAreInPlace(t *testing.T) {
	e := openTestXLA(t)
	p, err := e.Compile("update", func(g *graph.Graph) []*graph.Node {
		x := graph.Parameter(g, "x", shapes.Make(dtypes.Float32, 1, 10))
		out := []*graph.Node{graph.MulScalar(graph.BroadcastToDims(x, 100, 10), 3)}
		for _, name := range []string{"a", "b"} {
			old := graph.Parameter(g, name, shapes.Make(dtypes.Float32, 100, 10))
			zero := graph.Const(g, int32(0))
			out = append(out, graph.DynamicUpdateSlice(old, x, []*graph.Node{zero, zero}))
		}
		return out
	}, UpdateLast(2))
	expect.OK(t, err)
	defer p.Close()
	var in []compute.Buffer
	for _, rows := range []int{1, 100, 100} {
		b := expect.Must(e.Float32(make([]float32, 10*rows), rows, 10))(t)
		in = append(in, b)
	}
	places := []unsafe.Pointer{address(t, in[1]), address(t, in[2])}
	out := expect.Must(p.Run(in, nil))(t)
	for i, place := range places {
		if address(t, out[1+i]) != place {
			t.Errorf("output %d is not in the memory of its input", 1+i)
		}
	}
	FinalizeAll(append(out, in[0])...)
}
