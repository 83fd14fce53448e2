package backend

import (
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// TestSketchByHand counts y = x·w [2,4], then the sum of exp(y)·y, which is one number: x is [2,3], w [3,4], float32.
// Three values of 32 bytes are alive at once: y, exp(y) and their product; fused there is y alone, and the sum, which is
// the only kernel.
func TestSketchByHand(t *testing.T) {
	e := openTestGo(t)
	s, err := e.Sketch("by hand", func(g *graph.Graph) []*graph.Node {
		x := graph.Parameter(g, "x", shapes.Make(dtypes.Float32, 2, 3))
		w := graph.Parameter(g, "w", shapes.Make(dtypes.Float32, 3, 4))
		y := graph.Dot(x, w).Product()
		graph.Exp(graph.Exp(y)) // nobody reads it
		return []*graph.Node{graph.ReduceAllSum(graph.Mul(graph.Exp(y), y))}
	})
	expect.OK(t, err)
	want := Sketch{Inputs: 24 + 48, Outputs: 4, Alive: 3 * 32, Fused: 32 + 4, Written: 3*32 + 4, Nodes: 6, Kernels: 1,
		Flops: 2 * 2 * 3 * 4}
	if s != want {
		t.Errorf("%+v, want %+v", s, want)
	}
}

// TestSketchWritesOver: z = exp(x·w) [2,4] of 32 bytes takes the place of the product, which nobody else reads, unless
// the product is an output too. A transposed value has a place of its own.
func TestSketchWritesOver(t *testing.T) {
	e := openTestGo(t)
	for _, c := range []struct {
		name           string
		outputs        func(y *graph.Node) []*graph.Node
		fused, kernels int
	}{
		{"exp", func(y *graph.Node) []*graph.Node { return []*graph.Node{graph.Exp(y)} }, 32, 1},
		{"both", func(y *graph.Node) []*graph.Node { return []*graph.Node{graph.Exp(y), y} }, 64, 1},
		{"transposed", func(y *graph.Node) []*graph.Node { return []*graph.Node{graph.Transpose(y, 0, 1)} }, 64, 0},
	} {
		s, err := e.Sketch(c.name, func(g *graph.Graph) []*graph.Node {
			x := graph.Parameter(g, "x", shapes.Make(dtypes.Float32, 2, 3))
			w := graph.Parameter(g, "w", shapes.Make(dtypes.Float32, 3, 4))
			return c.outputs(graph.Dot(x, w).Product())
		})
		if err != nil || s.Fused != c.fused || s.Alive != 64 || s.Kernels != c.kernels {
			t.Errorf("%s: %+v, error %v: want %d bytes, 64 without it, and %d kernels", c.name, s, err, c.fused,
				c.kernels)
		}
	}
}

// TestSketchWide: a product [2,4] in bfloat16 takes 16 bytes, or 32 in float32, and a sum of it half a number more.
func TestSketchWide(t *testing.T) {
	e := openTestGo(t)
	s, err := e.Sketch("wide", func(g *graph.Graph) []*graph.Node {
		x := graph.Parameter(g, "x", shapes.Make(dtypes.BFloat16, 2, 3))
		w := graph.Parameter(g, "w", shapes.Make(dtypes.BFloat16, 3, 4))
		return []*graph.Node{graph.ReduceAllSum(graph.Dot(x, w).Product())}
	})
	if err != nil || s.Fused != 16+2 || s.Wide != 32+4 {
		t.Errorf("%+v, %v: want 18 bytes, 36 if they are float32", s, err)
	}
	uses := []Use{{Sketch: s, Runs: 1}}
	for widens, want := range map[bool]int{false: 18, true: 50} { // 1.39·36
		n := (&Engine{Name: "xla", Wants: Wants{Widens: widens}}).Needs(0, 0, uses)
		if n.Programs != want {
			t.Errorf("widens %v: %d bytes, want %d", widens, n.Programs, want)
		}
	}
}

// TestSketchProducts: products with axes of a batch, and over two axes.
func TestSketchProducts(t *testing.T) {
	e := openTestGo(t)
	for _, c := range []struct {
		left, right []int
		build       func(a, b *graph.Node) *graph.Node
		flops       float64
	}{
		{[]int{2, 5, 3}, []int{2, 3, 7}, func(a, b *graph.Node) *graph.Node {
			return graph.Dot(a, b).General([]int{2}, []int{0}, []int{1}, []int{0})
		}, 2 * 2 * 5 * 3 * 7},
		{[]int{2, 3, 5, 4}, []int{2, 3, 6, 4}, func(a, b *graph.Node) *graph.Node {
			return graph.Dot(a, b).General([]int{3}, []int{0, 1}, []int{3}, []int{0, 1})
		}, 2 * 2 * 3 * 5 * 6 * 4},
		{[]int{2, 3, 5}, []int{2, 3, 7}, func(a, b *graph.Node) *graph.Node {
			return graph.Dot(a, b).General([]int{0, 1}, nil, []int{0, 1}, nil)
		}, 2 * 2 * 3 * 5 * 7},
	} {
		s, err := e.Sketch("product", func(g *graph.Graph) []*graph.Node {
			a := graph.Parameter(g, "a", shapes.Make(dtypes.Float32, c.left...))
			b := graph.Parameter(g, "b", shapes.Make(dtypes.Float32, c.right...))
			return []*graph.Node{c.build(a, b)}
		})
		if err != nil || s.Flops != c.flops {
			t.Errorf("%v × %v: %v operations, error %v: want %v", c.left, c.right, s.Flops, err, c.flops)
		}
	}
}
