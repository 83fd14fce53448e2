//go:build cgo && linux

package backend

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	onnxbackend "github.com/gomlx/compute-onnx"
	onnx "github.com/gomlx/compute-onnx/support/protos"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// plainONNX is compute-onnx's engine without the decorator.
func plainONNX(e *Engine) *Engine {
	return &Engine{Backend: e.owner, owner: e.owner, Name: "onnx", Wants: e.Wants}
}

// randomProduct draws a product: axes of 1 to 4 elements in any order, up to two of each kind.
func randomProduct(r *rand.Rand) (l, lc, lb, rr, rc, rb []int) {
	type axis struct{ kind, index, size int } // kind 0 batch, 1 contracted, 2 free
	var left, right []axis
	for kind := range 3 {
		for i := range r.IntN(3) {
			size := 1 + r.IntN(4)
			left = append(left, axis{kind, i, size})
			if kind == 2 {
				continue
			}
			right = append(right, axis{kind, i, size})
		}
	}
	for i := range r.IntN(3) {
		right = append(right, axis{2, i, 1 + r.IntN(4)})
	}
	place := func(axes []axis) (dims, contracted, batch []int) {
		r.Shuffle(len(axes), func(i, j int) { axes[i], axes[j] = axes[j], axes[i] })
		contracted, batch = make([]int, 2), make([]int, 2)
		counts := [3]int{}
		for at, a := range axes {
			dims = append(dims, a.size)
			counts[a.kind]++
			switch a.kind {
			case 0:
				batch[a.index] = at
			case 1:
				contracted[a.index] = at
			}
		}
		return dims, contracted[:counts[1]], batch[:counts[0]]
	}
	l, lc, lb = place(left)
	rr, rc, rb = place(right)
	return
}

func TestRandomProductsEqualPlainONNXAndGo(t *testing.T) {
	e, goEngine := openTestONNX(t), openTestGo(t)
	plain := plainONNX(e)
	r := rand.New(rand.NewPCG(6, 1))
	for i := range 60 {
		l, lc, lb, rr, rc, rb := randomProduct(r)
		what := fmt.Sprintf("case %d: %v contracted %v batch %v by %v contracted %v batch %v", i, l, lc, lb, rr, rc, rb)
		in := []tensor{randomTensor(r, l...), randomTensor(r, rr...)}
		dot := func(x []*graph.Node) *graph.Node { return graph.DotGeneral(x[0], lc, lb, x[1], rc, rb) }
		f := func(x []*graph.Node) []*graph.Node { return []*graph.Node{dot(x)} }
		if slices.IsSorted(lc) && slices.IsSorted(rc) { // else GoMLX's own gradient has the wrong shape
			f = withGradients(dot)
		}
		want := evaluate(t, goEngine, in, f)
		near(t, what+": onnx against go", evaluate(t, e, in, f), want, 1e-5)
		near(t, what+": plain onnx against go", evaluate(t, plain, in, f), want, 1e-5)
	}
}

// attentions are softmax(q kᵀ) v in several layouts.
var attentions = []struct {
	name    string
	q, k, v []int
	f       func(q, k, v *graph.Node) *graph.Node
}{
	{"[B,h,T,D]", []int{2, 3, 4, 5}, []int{2, 3, 6, 5}, []int{2, 3, 6, 5}, func(q, k, v *graph.Node) *graph.Node {
		p := graph.Softmax(graph.DotGeneral(q, []int{3}, []int{0, 1}, k, []int{3}, []int{0, 1}))
		return graph.DotGeneral(p, []int{3}, []int{0, 1}, v, []int{2}, []int{0, 1})
	}},
	{"[B,T,h,D]", []int{2, 4, 3, 5}, []int{2, 6, 3, 5}, []int{2, 6, 3, 5}, func(q, k, v *graph.Node) *graph.Node {
		p := graph.Softmax(graph.DotGeneral(q, []int{3}, []int{0, 2}, k, []int{3}, []int{0, 2}))
		return graph.DotGeneral(p, []int{3}, []int{0, 1}, v, []int{1}, []int{0, 2})
	}},
	{"grouped queries [B,kv,G,T,D]", []int{2, 2, 3, 4, 5}, []int{2, 2, 6, 5}, []int{2, 2, 6, 5},
		func(q, k, v *graph.Node) *graph.Node {
			p := graph.Softmax(graph.DotGeneral(q, []int{4}, []int{0, 1}, k, []int{3}, []int{0, 1}))
			return graph.DotGeneral(p, []int{4}, []int{0, 1}, v, []int{2}, []int{0, 1})
		}},
	{"keys by columns [B,h,D,T]", []int{1, 3, 1, 5}, []int{1, 3, 5, 6}, []int{1, 3, 6, 5},
		func(q, k, v *graph.Node) *graph.Node {
			p := graph.Softmax(graph.DotGeneral(q, []int{3}, []int{0, 1}, k, []int{2}, []int{0, 1}))
			return graph.DotGeneral(p, []int{3}, []int{0, 1}, v, []int{2}, []int{0, 1})
		}},
	{"one head, one row", []int{1, 1, 4, 5}, []int{1, 1, 4, 5}, []int{1, 1, 4, 5},
		func(q, k, v *graph.Node) *graph.Node {
			p := graph.Softmax(graph.DotGeneral(q, []int{3}, []int{0, 1}, k, []int{3}, []int{0, 1}))
			return graph.DotGeneral(p, []int{3}, []int{0, 1}, v, []int{2}, []int{0, 1})
		}},
}

func TestAttentionLayoutsEqualPlainONNXAndGo(t *testing.T) {
	e, goEngine := openTestONNX(t), openTestGo(t)
	r := rand.New(rand.NewPCG(6, 2))
	for _, a := range attentions {
		t.Run(a.name, func(t *testing.T) {
			in := []tensor{randomTensor(r, a.q...), randomTensor(r, a.k...), randomTensor(r, a.v...)}
			f := withGradients(func(x []*graph.Node) *graph.Node { return a.f(x[0], x[1], x[2]) })
			want := evaluate(t, goEngine, in, f)
			near(t, "onnx against go", evaluate(t, e, in, f), want, 1e-5)
			near(t, "plain onnx against go", evaluate(t, plainONNX(e), in, f), want, 1e-5)
		})
	}
}

// opCounts compiles f and counts the operations of the ONNX model.
func opCounts(t *testing.T, e *Engine, in []tensor, f func(x []*graph.Node) []*graph.Node) map[string]int {
	t.Helper()
	owner := e.owner.(*onnxbackend.Backend)
	owner.SetKeepModelProto(true)
	defer owner.SetKeepModelProto(false)
	g := graph.NewGraph(e.Backend, "ops")
	var x []*graph.Node
	for i, a := range in {
		x = append(x, graph.Parameter(g, fmt.Sprint("x", i), shapes.Make(dtypes.Float32, a.dims...)))
	}
	expect.OK(t, g.Compile(f(x)...))
	defer g.Finalize()
	counts := map[string]int{}
	for _, n := range g.Executable().(interface{ ModelProto() *onnx.ModelProto }).ModelProto().Graph.Node {
		counts[n.OpType]++
	}
	return counts
}

func TestAttentionIsMatMulsWithoutCopies(t *testing.T) {
	e := openTestONNX(t)
	a := attentions[0] // scores, outputs, and two gradients of each
	in := []tensor{{dims: a.q}, {dims: a.k}, {dims: a.v}}
	f := withGradients(func(x []*graph.Node) *graph.Node { return a.f(x[0], x[1], x[2]) })
	got := opCounts(t, e, in, f)
	if got["Einsum"] != 0 || got["MatMul"] != 6 {
		t.Errorf("got %d Einsum and %d MatMul, want 0 and 6", got["Einsum"], got["MatMul"])
	}
	if plain := opCounts(t, plainONNX(e), in, f); plain["Einsum"] != 6 {
		t.Errorf("plain onnx: got %d Einsum, want 6: is the decorator still useful?", plain["Einsum"])
	}
	if got["Transpose"] > 4 { // kᵀ; vᵀ, Pᵀ, dSᵀ in the gradients; all of the last two axes, fused into the products
		t.Errorf("got %d Transpose, want 4 at most", got["Transpose"])
	}
}

func TestGradientOfWeightSwapsOperands(t *testing.T) {
	e := openTestONNX(t)
	for _, tc := range []struct {
		name string
		w    []int
		axis int
	}{{"[in,out]", []int{3, 5}, 0}, {"[out,in]", []int{5, 3}, 1}} {
		t.Run(tc.name, func(t *testing.T) {
			in := []tensor{{dims: []int{4, 3}}, {dims: tc.w}, {dims: []int{4, 5}}}
			got := opCounts(t, e, in, func(x []*graph.Node) []*graph.Node {
				y := graph.DotGeneral(x[0], []int{1}, nil, x[1], []int{tc.axis}, nil)
				return graph.Gradient(graph.ReduceAllSum(graph.Mul(y, x[2])), x[1])
			})
			if got["MatMul"] != 1 || got["Transpose"] != 1 {
				t.Errorf("got %v: want one MatMul and one Transpose, that of an operand", got)
			}
		})
	}
}

func TestCopiesAreDropped(t *testing.T) {
	e := openTestONNX(t)
	in := []tensor{{dims: []int{2, 1, 3}, data: []float32{1, 2, 3, 4, 5, 6}}}
	f := func(x []*graph.Node) []*graph.Node {
		y := graph.TransposeAllAxes(x[0], 0, 1, 2)                       // the identity
		y = graph.TransposeAllAxes(y, 1, 0, 2)                           // [1,2,3]: moves no data
		y = graph.Reshape(graph.Reshape(y, 6), 2, 3)                     // one reshape
		return []*graph.Node{graph.AddScalar(graph.Reshape(y, 2, 3), 1)} // no reshape
	}
	if got := opCounts(t, e, in, f); got["Transpose"] != 0 || got["Reshape"] != 1 {
		t.Errorf("got %v: want no Transpose and one Reshape", got)
	}
	near(t, "values", evaluate(t, e, in, f), [][]float32{{2, 3, 4, 5, 6, 7}}, 0)
}

func TestRowsAreGathered(t *testing.T) {
	e, goEngine := openTestONNX(t), openTestGo(t)
	in := []tensor{{dims: []int{4, 2}, data: []float32{0, 1, 10, 11, 20, 21, 30, 31}},
		{dims: []int{2, 3}, data: []float32{3, 0, 3, -1, 9, 1}}}
	f := func(x []*graph.Node) []*graph.Node {
		index := graph.ConvertDType(x[1], dtypes.Int32)
		return []*graph.Node{graph.Gather(x[0], graph.InsertAxes(index, -1))}
	}
	want := [][]float32{{30, 31, 0, 1, 30, 31, 0, 1, 30, 31, 10, 11}} // -1 and 9 are clamped
	near(t, "onnx", evaluate(t, e, in, f), want, 0)
	near(t, "go", evaluate(t, goEngine, in, f), want, 0)
	if got := opCounts(t, e, in, f); got["Gather"] != 1 || got["GatherND"] != 0 || got["Transpose"] != 0 {
		t.Errorf("got %v: want one Gather, no GatherND and no Transpose", got)
	}
}

func TestOtherGathersEqualGo(t *testing.T) {
	e, goEngine := openTestONNX(t), openTestGo(t)
	r := rand.New(rand.NewPCG(6, 3))
	in := []tensor{randomTensor(r, 3, 4, 2), {dims: []int{2, 2}, data: []float32{2, 3, 0, 1}}}
	f := func(x []*graph.Node) []*graph.Node { // elements [i, j, :]
		return []*graph.Node{graph.Gather(x[0], graph.ConvertDType(x[1], dtypes.Int32))}
	}
	near(t, "pairs of indices", evaluate(t, e, in, f), evaluate(t, goEngine, in, f), 0)
}

func TestRuns(t *testing.T) {
	for _, tc := range []struct{ dims, perm, source, order []int }{
		{[]int{2, 3, 4, 5}, []int{0, 1, 2, 3}, []int{120}, []int{0}},
		{[]int{2, 3, 4, 5}, []int{0, 1, 3, 2}, []int{6, 4, 5}, []int{0, 2, 1}},
		{[]int{2, 3, 4, 5}, []int{0, 2, 1, 3}, []int{2, 3, 4, 5}, []int{0, 2, 1, 3}},
		{[]int{2, 1, 4, 1}, []int{1, 3, 0, 2}, []int{8}, []int{0}},
		{[]int{2, 1, 4}, []int{2, 1, 0}, []int{2, 4}, []int{1, 0}},
		{[]int{1, 1}, []int{1, 0}, nil, nil},
	} {
		if source, order := runs(tc.dims, tc.perm); !slices.Equal(source, tc.source) || !slices.Equal(order, tc.order) {
			t.Errorf("runs(%v, %v) = %v, %v: want %v, %v", tc.dims, tc.perm, source, order, tc.source, tc.order)
		}
	}
}
