package backend

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/internal/testkit/need"
)

func openTestGo(t *testing.T) *Engine {
	t.Helper()
	e := expect.Must(openGo())(t)
	t.Cleanup(e.Close)
	return e
}

// openTestONNX opens onnx, which the test needs.
func openTestONNX(t *testing.T) *Engine {
	t.Helper()
	if s := statusONNX(); !s.Present {
		need.Lack(t, "onnx", s.Detail)
	}
	e := expect.Must(Open("onnx"))(t)
	t.Cleanup(e.Close)
	return e
}

// eachEngine runs a test on go and onnx.
func eachEngine(t *testing.T, test func(t *testing.T, e *Engine)) {
	t.Run("go", func(t *testing.T) { test(t, openTestGo(t)) })
	t.Run("onnx", func(t *testing.T) { test(t, openTestONNX(t)) })
}

// inChild names the running test in a process that runChild starts.
const inChild = "POSTTRAIN_TEST_CHILD"

// runChild runs only this test in a new process and returns its output. The process is killed after limit.
func runChild(t *testing.T, limit time.Duration, env ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$", "-test.v")
	cmd.Env = append(os.Environ(), append(env, inChild+"="+t.Name())...)
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		t.Fatalf("the child process did not end within %s:\n%s", limit, out)
	}
	if err != nil {
		t.Fatalf("the child process failed: %v\n%s", err, out)
	}
	return string(out)
}

func isChild(t *testing.T) bool { return os.Getenv(inChild) == t.Name() }

// tensor is an input of a test graph.
type tensor struct {
	dims []int
	data []float32
}

func randomTensor(r *rand.Rand, dims ...int) tensor {
	x := tensor{dims: dims, data: make([]float32, shapes.Make(dtypes.Float32, dims...).Size())}
	for i := range x.data {
		x.data[i] = float32(r.NormFloat64())
	}
	return x
}

// evaluate compiles a function of tensors, runs it once and returns its outputs.
func evaluate(t *testing.T, e *Engine, in []tensor, f func(x []*graph.Node) []*graph.Node) [][]float32 {
	t.Helper()
	p, err := e.Compile("test", func(g *graph.Graph) []*graph.Node {
		var x []*graph.Node
		for i, a := range in {
			x = append(x, graph.Parameter(g, fmt.Sprint("x", i), shapes.Make(dtypes.Float32, a.dims...)))
		}
		return f(x)
	})
	expect.OK(t, err)
	defer p.Close()
	var buffers []compute.Buffer
	defer func() { FinalizeAll(buffers...) }()
	for _, a := range in {
		b := expect.Must(e.Float32(a.data, a.dims...))(t)
		buffers = append(buffers, b)
	}
	return runOnce(t, p, buffers)
}

// runOnce runs a program and copies its float32 outputs.
func runOnce(t *testing.T, p *Program, in []compute.Buffer) [][]float32 {
	t.Helper()
	out := expect.Must(p.Run(in, nil))(t)
	defer FinalizeAll(out...)
	var values [][]float32
	for _, b := range out {
		v := expect.Must(Floats(b))(t)
		values = append(values, slices.Clone(v))
	}
	return values
}

// withGradients gives f(x) and the gradients of a fixed weighted sum of f(x) (weights 0, 1, ... 6, 0, ...).
func withGradients(f func(x []*graph.Node) *graph.Node) func(x []*graph.Node) []*graph.Node {
	return func(x []*graph.Node) []*graph.Node {
		y := f(x)
		g := y.Graph()
		n := y.Shape().Size()
		weights := graph.ModScalar(graph.IotaFull(g, shapes.Make(dtypes.Float32, n)), 7)
		loss := graph.ReduceAllSum(graph.Mul(graph.Reshape(y, n), weights))
		return append([]*graph.Node{y}, graph.Gradient(loss, x...)...)
	}
}

// near fails unless every value is within tolerance, relative to the largest value of want (at least 1).
func near(t *testing.T, what string, got, want [][]float32, tolerance float64) {
	t.Helper()
	for i := range want {
		top := 1.0
		for _, v := range want[i] {
			top = max(top, math.Abs(float64(v)))
		}
		for j := range want[i] {
			if d := math.Abs(float64(got[i][j] - want[i][j])); !(d <= tolerance*top) {
				t.Fatalf("%s: output %d, element %d: got %g, want %g (largest %g)", what, i, j, got[i][j], want[i][j],
					top)
			}
		}
	}
}
