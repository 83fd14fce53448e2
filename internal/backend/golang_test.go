package backend

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// With two threads the library's default pool has four workers. The twelve products below become ready at once, as the
// heads of a training step do: four occupy the workers, and each then waits for a free worker.
func TestGoDoesNotDeadlockOnParallelProducts(t *testing.T) {
	if !isChild(t) {
		runChild(t, 60*time.Second, "GOMAXPROCS=2")
		return
	}
	e := openTestGo(t)
	p := expect.Must(e.Compile("products", parallelProducts))(t)
	in := parallelInputs(t, p)
	for range 50 {
		out := expect.Must(p.Run(in, nil))(t)
		FinalizeAll(out...)
	}
}

// parallelProducts is twelve batched products of one tensor, and the gradient of their sum.
func parallelProducts(g *graph.Graph) []*graph.Node {
	shape := shapes.Make(dtypes.Float32, 8, 32, 32)
	x := graph.AddScalar(graph.Parameter(g, "x", shape), 1)
	var weights []*graph.Node
	sum := graph.ScalarZero(g, dtypes.Float32)
	for i := range 12 {
		w := graph.Parameter(g, fmt.Sprint("w", i), shape)
		weights = append(weights, w)
		y := graph.DotGeneral(x, []int{1}, []int{0}, w, []int{1}, []int{0})
		sum = graph.Add(sum, graph.ReduceAllSum(graph.Square(y)))
	}
	return append(graph.Gradient(sum, weights...), sum)
}

func parallelInputs(t *testing.T, p *Program) []compute.Buffer {
	t.Helper()
	_, inputs := p.Inputs()
	var in []compute.Buffer
	for _, shape := range inputs {
		b, view, err := p.engine.SharedFloat32(shape.Dimensions...)
		expect.OK(t, err)
		for i := range view {
			view[i] = float32(i%13) / 13
		}
		in = append(in, b)
	}
	return in
}

func TestGoIsUnboundedAndSilent(t *testing.T) {
	r, w, err := os.Pipe()
	expect.OK(t, err)
	stdout := os.Stdout
	os.Stdout = w
	e, err := openGo()
	os.Stdout = stdout
	_ = w.Close()
	expect.OK(t, err)
	defer e.Close()
	if printed, _ := io.ReadAll(r); len(printed) != 0 {
		t.Errorf("printed %q on standard output, want nothing", printed)
	}
	if d := e.Description(); !strings.Contains(d, "parallelism=-1") {
		t.Errorf("description %q: want parallelism=-1", d)
	}
}

// The library's kernels panic on float16 in goroutines of their own, which would end the process; its AVX2 kernel of
// bfloat16 adds up eight of every sixteen terms.
func TestGoRefusesHalves(t *testing.T) {
	e := openTestGo(t)
	for dtype, of := range map[dtypes.DType]func(x *graph.Node) *graph.Node{
		dtypes.Float16:  graph.Exp,
		dtypes.BFloat16: func(x *graph.Node) *graph.Node { return graph.Dot(x, x).Product() },
	} {
		_, err := e.Compile("half", func(g *graph.Graph) []*graph.Node {
			return []*graph.Node{of(graph.Parameter(g, "x", shapes.Make(dtype, 4)))}
		})
		if err == nil || !strings.Contains(err.Error(), "float16") {
			t.Errorf("%s: got %v, want an error that names float16", dtype, err)
		}
	}
}

// If the library has no such field, opening the engine is an error; without this check training would hang.
func TestUnboundWorkersNoticesAnotherLibrary(t *testing.T) {
	var other struct {
		compute.Backend
		Pool int
	}
	if err := unboundWorkers(&other); err == nil {
		t.Error("got no error for a backend without a worker pool")
	}
}

// TestHint: an engine that is built without its kernels says so once it is opened.
func TestHint(t *testing.T) {
	said := ""
	say := func(format string, args ...any) { said += fmt.Sprintf(format, args...) }
	openTestGo(t).Report(say, say)
	if want := "engine go: " + goHint; (goHint == "") != (said == "") || said != "" && said != want {
		t.Errorf("%q, want %q", said, want)
	}
}
