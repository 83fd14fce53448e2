//go:build cgo && linux

package backend

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
)

// Products of few query rows, and of rows of any rank by a matrix, equal go's. They need no reshape if their axes are
// in MatMul's order.
func TestProductsOfDecoding(t *testing.T) {
	e, goEngine := openTestONNX(t), openTestGo(t)
	r := rand.New(rand.NewPCG(6, 3))
	scores := func(x []*graph.Node) *graph.Node {
		q := graph.Reshape(x[0], append(x[0].Shape().Dimensions[:3:3], x[0].Shape().Dim(3), x[0].Shape().Dim(5))...)
		return graph.Reshape(graph.DotGeneral(q, []int{4}, []int{0, 1, 2}, x[1], []int{3}, []int{0, 1, 2}), 2, 3, 1,
			x[0].Shape().Dim(3), 1, 7)
	}
	for _, c := range []struct {
		name     string
		in       [][]int
		f        func(x []*graph.Node) *graph.Node
		reshapes int
	}{
		{"two query rows", [][]int{{2, 3, 1, 2, 1, 5}, {2, 3, 1, 5, 7}}, scores, 1}, // of the keys
		{"five query rows", [][]int{{2, 3, 1, 5, 1, 5}, {2, 3, 1, 5, 7}}, scores, 2},
		{"three axes by [in,out]", [][]int{{1, 4, 5}, {5, 6}},
			func(x []*graph.Node) *graph.Node { return graph.DotGeneral(x[0], []int{2}, nil, x[1], []int{0}, nil) }, 0},
		{"three axes by [out,in]", [][]int{{1, 4, 5}, {6, 5}},
			func(x []*graph.Node) *graph.Node { return graph.DotGeneral(x[0], []int{2}, nil, x[1], []int{1}, nil) }, 0},
		{"keys by rows", [][]int{{2, 3, 9, 5}, {2, 3, 7, 5}}, func(x []*graph.Node) *graph.Node {
			return graph.DotGeneral(x[0], []int{3}, []int{0, 1}, x[1], []int{3}, []int{0, 1})
		}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := []tensor{randomTensor(r, c.in[0]...), randomTensor(r, c.in[1]...)}
			f := func(x []*graph.Node) []*graph.Node { return []*graph.Node{c.f(x)} }
			near(t, "onnx against go", evaluate(t, e, in, f), evaluate(t, goEngine, in, f), 1e-5)
			if got := opCounts(t, e, in, f); got["Reshape"] != c.reshapes || got["MatMul"] != 1 || got["Einsum"] != 0 {
				t.Errorf("operations %v, want %d Reshape and one MatMul", got, c.reshapes)
			}
		})
	}
}

// A weight times the transposition of a few rows is not swapped into rows times the weight, which would be slower.
func TestProductOfFewRowsIsNotSwapped(t *testing.T) {
	e := openTestONNX(t)
	// 16 rows: the rows and the result are transposed; 96 rows: the weight is.
	for _, c := range []struct{ rows, transposes int }{{16, 2}, {96, 1}} {
		in := []tensor{{dims: []int{5, 3}}, {dims: []int{c.rows, 3}}}
		got := opCounts(t, e, in, func(x []*graph.Node) []*graph.Node {
			y := graph.DotGeneral(x[0], []int{1}, nil, graph.AddScalar(x[1], 1), []int{1}, nil)
			return []*graph.Node{graph.Transpose(y, 0, 1)}
		})
		if got["MatMul"] != 1 || got["Transpose"] != c.transposes {
			t.Errorf("%d rows: operations %v, want one MatMul and %d Transpose", c.rows, got, c.transposes)
		}
	}
}

// A layer norm of epsilon -e is the RMSNorm of epsilon e, in one or two operations. Types other than float32 are
// refused.
func TestFusedRMSNorm(t *testing.T) {
	e := openTestONNX(t)
	for _, engine := range []*Engine{e, openTestGo(t)} { // graphs find it in their backend
		evaluate(t, engine, []tensor{randomTensor(rand.New(rand.NewPCG(1, 1)), 1)}, func(x []*graph.Node) []*graph.Node {
			f, ok := x[0].Graph().Backend().(interface{ FusedRMSNorm() bool })
			if has := ok && f.FusedRMSNorm(); has != (engine == e) {
				t.Errorf("%s: FusedRMSNorm is %v", engine.Name, has)
			}
			return x
		})
	}
	r := rand.New(rand.NewPCG(6, 4))
	for _, eps := range []float64{1e-5, 1e-6, 1e-2} {
		for _, dims := range [][]int{{4, 6}, {1, 4, 6}, {2, 1, 3, 6}} {
			in := []tensor{randomTensor(r, dims...), randomTensor(r, 6)}
			fused := func(x []*graph.Node) []*graph.Node {
				return []*graph.Node{graph.BackendFusedLayerNorm(x[0], []int{len(dims) - 1}, -eps, x[1], nil)}
			}
			plain := func(x []*graph.Node) []*graph.Node {
				mean := graph.ReduceAndKeep(graph.Square(x[0]), graph.ReduceMean, -1)
				ones := make([]int, len(dims)-1)
				for i := range ones {
					ones[i] = 1
				}
				return []*graph.Node{graph.Mul(graph.Div(x[0], graph.Sqrt(graph.AddScalar(mean, eps))),
					graph.Reshape(x[1], append(ones, 6)...))}
			}
			near(t, fmt.Sprintf("epsilon %g, %v", eps, dims), evaluate(t, e, in, fused), evaluate(t, e, in, plain),
				2e-6)
			if got := opCounts(t, e, in, fused); got["SimplifiedLayerNormalization"] != 1 || len(got) > 2 {
				t.Errorf("epsilon %g: operations %v, want one RMSNorm and at most one more", eps, got)
			}
		}
	}
	_, err := e.Compile("float64", func(g *graph.Graph) []*graph.Node {
		x, w := graph.Parameter(g, "x", shapes.Make(dtypes.Float64, 2, 3)),
			graph.Parameter(g, "w", shapes.Make(dtypes.Float64, 3))
		return []*graph.Node{graph.BackendFusedLayerNorm(x, []int{1}, -1e-5, w, nil)}
	})
	if err == nil || !strings.Contains(err.Error(), "RMSNorm") {
		t.Errorf("float64: got %v, want an error that names RMSNorm", err)
	}
}
