package backend_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// scale builds y = w x for a number w and x [2].
func scale(g *graph.Graph) []*graph.Node {
	x := graph.Parameter(g, "x", shapes.Make(dtypes.Float32, 2))
	w := graph.Parameter(g, "w", shapes.Make(dtypes.Float32))
	return []*graph.Node{graph.Mul(x, w)}
}

func compileGraph(t *testing.T, e *backend.Engine, build func(g *graph.Graph) []*graph.Node) *backend.Program {
	t.Helper()
	p := expect.Must(e.Compile("scale", build))(t)
	t.Cleanup(p.Close)
	return p
}

func float32s(t *testing.T, e *backend.Engine, data []float32, dims ...int) compute.Buffer {
	t.Helper()
	return expect.Must(e.Float32(data, dims...))(t)
}

func TestRunGivesOutputs(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		p := compileGraph(t, e, scale)
		x, w := float32s(t, e, []float32{1, 2}, 2), float32s(t, e, []float32{3})
		for range 3 { // the inputs stay valid
			out := expect.Must(p.Run([]compute.Buffer{x, w}, nil))(t)
			if got, err := backend.Floats(out[0]); err != nil || len(got) != 2 || got[0] != 3 || got[1] != 6 {
				t.Fatalf("got %v, %v: want [3 6]", got, err)
			}
			backend.FinalizeAll(out...)
		}
		backend.FinalizeAll(x, w)
		names, inputs := p.Inputs()
		if strings.Join(names, " ") != "x w" || !inputs[0].Equal(shapes.Make(dtypes.Float32, 2)) ||
			len(p.Outputs()) != 1 {
			t.Errorf("got inputs %v %v, outputs %v: want x [2] and w, one output", names, inputs, p.Outputs())
		}
	})
}

// An output that is an input or another output too has a buffer of its own, which can be finalised.
func TestOutputsBelongToTheCaller(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		p := compileGraph(t, e, func(g *graph.Graph) []*graph.Node {
			x := graph.Parameter(g, "x", shapes.Make(dtypes.Float32, 2))
			y := graph.Neg(x)
			return []*graph.Node{x, y, y}
		})
		x := float32s(t, e, []float32{1, 2}, 2)
		defer backend.FinalizeAll(x)
		out := expect.Must(p.Run([]compute.Buffer{x}, nil))(t)
		backend.FinalizeAll(out[0], out[1])
		if got, err := backend.Floats(x); err != nil || got[0] != 1 {
			t.Errorf("the input: got %v, %v: want [1 2]", got, err)
		}
		if got, err := backend.Floats(out[2]); err != nil || got[1] != -2 {
			t.Errorf("the second copy: got %v, %v: want [-1 -2]", got, err)
		}
		backend.FinalizeAll(out[2])
	})
}

func TestGraphWithoutInputs(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		p := compileGraph(t, e, func(g *graph.Graph) []*graph.Node {
			return []*graph.Node{graph.Const(g, []float32{1, 2})}
		})
		out := expect.Must(p.Run(nil, nil))(t)
		defer backend.FinalizeAll(out...)
		if got, err := backend.Floats(out[0]); err != nil || got[1] != 2 {
			t.Errorf("got %v, %v: want [1 2]", got, err)
		}
	})
}

func TestRunRefusesWrongInputs(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		p := compileGraph(t, e, scale)
		x, w := float32s(t, e, []float32{1, 2}, 2), float32s(t, e, []float32{3})
		long := float32s(t, e, []float32{1, 2, 3}, 3)
		whole := expect.Must(e.Int32([]int32{1, 2}, 2))(t)
		gone := float32s(t, e, []float32{1, 2}, 2)
		backend.FinalizeAll(gone)
		other := float32s(t, backendtest.Go(t), []float32{1, 2}, 2)
		for _, tc := range []struct {
			name   string
			in     []compute.Buffer
			donate []bool
			want   string
		}{
			{"too few", []compute.Buffer{x}, nil, "found 1 inputs, want 2"},
			{"too many", []compute.Buffer{x, w, w}, nil, "found 3 inputs, want 2"},
			{"nil", []compute.Buffer{nil, w}, nil, "input 0 (x): found nil"},
			{"shape", []compute.Buffer{long, w}, nil, "input 0 (x): found (Float32)[3], want (Float32)[2]"},
			{"type", []compute.Buffer{whole, w}, nil, "found (Int32)[2]"},
			{"finalised", []compute.Buffer{gone, w}, nil, "input 0"},
			{"another engine's", []compute.Buffer{other, w}, nil, "another engine"},
			{"donate", []compute.Buffer{x, w}, []bool{true}, "donate has 1"},
		} {
			if out, err := p.Run(tc.in, tc.donate); err == nil || !strings.Contains(err.Error(), tc.want) ||
				strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: got %v, %v: want one line with %q", tc.name, out, err, tc.want)
			}
		}
	})
}

func TestDonatedInputsAreGone(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		p := compileGraph(t, e, scale)
		x, w := float32s(t, e, []float32{1, 2}, 2), float32s(t, e, []float32{3})
		out := expect.Must(p.Run([]compute.Buffer{x, w}, []bool{true, false}))(t)
		defer backend.FinalizeAll(append(out, w)...)
		if got, err := backend.Floats(out[0]); err != nil || got[1] != 6 {
			t.Errorf("got %v, %v: want [3 6]", got, err)
		}
		if _, err := p.Run([]compute.Buffer{x, w}, nil); err == nil && e.Name == "onnx" { // go does not notice
			t.Error("Run accepts a donated input again, want an error")
		}
	})
}

func TestCompileTurnsPanicsIntoErrors(t *testing.T) {
	param := func(g *graph.Graph, name string, dims ...int) *graph.Node {
		return graph.Parameter(g, name, shapes.Make(dtypes.Float32, dims...))
	}
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		for _, tc := range []struct {
			name  string
			build func(g *graph.Graph) []*graph.Node
		}{
			{"shapes", func(g *graph.Graph) []*graph.Node {
				return []*graph.Node{graph.Add(param(g, "a", 2), param(g, "b", 3))}
			}},
			{"nil pointer", func(g *graph.Graph) []*graph.Node {
				var x *graph.Node
				return []*graph.Node{graph.Neg(x)}
			}},
			{"a panic of build", func(*graph.Graph) []*graph.Node { panic("boom") }},
			{"no outputs", func(g *graph.Graph) []*graph.Node { param(g, "a", 2); return nil }},
			{"nil output", func(g *graph.Graph) []*graph.Node { return []*graph.Node{param(g, "a", 2), nil} }},
			{"a name twice", func(g *graph.Graph) []*graph.Node {
				return []*graph.Node{graph.Add(param(g, "a", 2), param(g, "a", 2))}
			}},
		} {
			p, err := e.Compile(tc.name, tc.build)
			if err == nil || p != nil || strings.Contains(err.Error(), "\n") ||
				!strings.Contains(err.Error(), "compile "+tc.name) {
				t.Errorf("%s: got %v, %v: want one line that names the program", tc.name, p, err)
			}
		}
	})
}

func TestPanicErrorKeepsCauseAndStack(t *testing.T) {
	cause := errors.New("cause")
	_, err := backendtest.Go(t).Compile("p", func(*graph.Graph) []*graph.Node { panic(cause) })
	var p *backend.PanicError
	if !errors.Is(err, cause) || !errors.As(err, &p) ||
		!strings.Contains(string(p.Stack), "TestPanicErrorKeepsCauseAndStack") {
		t.Errorf("got %v: want the cause and a stack with this test", err)
	}
}

func TestBuffers(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		data := []float32{1, 2, 3, 4, 5, 6}
		b := float32s(t, e, data, 2, 3)
		data[0] = 9
		if got, err := backend.Floats(b); err != nil || len(got) != 6 || got[0] != 1 {
			t.Errorf("got %v, %v: want a copy of [1 2 3 4 5 6]", got, err)
		}
		backend.FinalizeAll(b, nil)
		if _, err := backend.Floats(b); err == nil {
			t.Error("reading a finalised buffer: got no error")
		}
		for _, dims := range [][]int{{2, 2}, {-2, -3}, {}} {
			if _, err := e.Float32(data, dims...); err == nil {
				t.Errorf("6 values in %v: got no error", dims)
			}
		}
		whole := expect.Must(e.Int32([]int32{7, 8}, 2))(t)
		defer backend.FinalizeAll(whole)
		got := make([]int32, 2)
		if err := whole.ToFlatData(got); err != nil || got[1] != 8 {
			t.Errorf("got %v, %v: want [7 8]", got, err)
		}
		if _, err := backend.Floats(whole); err == nil {
			t.Error("int32 read as floats: got no error")
		}
	})
}

// The memory of a shared buffer comes from a pool: it must be zeroed, and no copy.
func TestSharedBuffersAreZeroedAndLive(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		if !e.Wants.SharedMemory {
			return // it has memory of its own
		}
		for range 3 {
			b, view, err := e.SharedFloat32(3, 5)
			expect.OK(t, err)
			for i, v := range view {
				if v != 0 {
					t.Fatalf("element %d is %g, want 0", i, v)
				}
				view[i] = 7
			}
			got, err := backend.Floats(b)
			if err != nil || len(got) != 15 || &got[0] != &view[0] {
				t.Fatalf("got %v, %v: want the same memory", got, err)
			}
			backend.FinalizeAll(b)
		}
		if _, _, err := e.SharedFloat32(2, -1); err == nil {
			t.Error("negative dimension: got no error")
		}
	})
}
