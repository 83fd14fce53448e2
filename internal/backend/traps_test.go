package backend

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers/attention"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/internal/testkit/need"
)

// Trap 0. The gradient of a look-up is a scatter whose indices may repeat, and then ONNX Runtime loses additions. It
// must not compile.
func TestGradientOfLookupIsRefusedOnONNX(t *testing.T) {
	e := openTestONNX(t)
	_, err := e.Compile("lookup", lookupGradient)
	expect.Error(t, err, "race")
}

// lookupGradient is the gradient of a table [8,3] looked up at tokens [6,1] in the graph.
func lookupGradient(g *graph.Graph) []*graph.Node {
	table := graph.Parameter(g, "table", shapes.Make(dtypes.Float32, 8, 3))
	tokens := graph.Parameter(g, "tokens", shapes.Make(dtypes.Int32, 6, 1))
	rows := graph.Gather(table, tokens)
	return graph.Gradient(graph.ReduceAllSum(graph.Mul(rows, rows)), table)
}

// The go engine adds in one thread, so that the gradient in the graph is right.
func TestGradientOfLookupOnGo(t *testing.T) {
	e := openTestGo(t)
	p := expect.Must(e.Compile("lookup", lookupGradient))(t)
	defer p.Close()
	table := expect.Must(e.Float32(slices.Repeat([]float32{1}, 24), 8, 3))(t)
	tokens := expect.Must(e.Int32([]int32{5, 5, 0, 5, 0, 7}, 6, 1))(t)
	got := runOnce(t, p, []compute.Buffer{table, tokens})[0]
	for row, count := range []float32{2, 0, 0, 0, 0, 3, 0, 1} {
		if got[row*3] != 2*count {
			t.Errorf("row %d: got %g, want %g", row, got[row*3], 2*count)
		}
	}
}

// With Wants.HostRows the rows are inputs and their gradients outputs, which the host adds up. With a token that
// repeats hundreds of times this equals float64 in each of 20 runs.
func TestHostRowsGradientIsExactInEveryRun(t *testing.T) {
	const tokens, width, vocabulary = 2048, 64, 512
	r := rand.New(rand.NewPCG(6, 4))
	index := make([]int, tokens)
	for i := range index {
		index[i] = r.IntN(vocabulary)
		if i%4 == 3 {
			index[i] = 0 // padding
		}
	}
	table := randomTensor(r, vocabulary, width)
	rows := tensor{dims: []int{tokens, width}}
	for _, token := range index {
		rows.data = append(rows.data, table.data[token*width:(token+1)*width]...)
	}
	want := make([]float64, vocabulary*width)
	for i, token := range index {
		for j := range width {
			want[token*width+j] += 3 * math.Pow(float64(rows.data[i*width+j]), 2) // of the sum of cubes
		}
	}
	e := openTestONNX(t)
	for run := range 20 {
		grad := evaluate(t, e, []tensor{rows}, func(x []*graph.Node) []*graph.Node {
			return graph.Gradient(graph.ReduceAllSum(graph.Mul(x[0], graph.Square(x[0]))), x[0])
		})[0]
		got := make([]float32, vocabulary*width)
		for i, token := range index {
			for j := range width {
				got[token*width+j] += grad[i*width+j]
			}
		}
		for k := range want {
			if math.Abs(float64(got[k])-want[k]) > 1e-5*max(1, want[k]) {
				t.Fatalf("run %d, row %d: got %g, want %g", run, k/width, got[k], want[k])
			}
		}
	}
}

// A scatter to indices declared unique is accepted and right.
func TestUniqueScatterRuns(t *testing.T) {
	eachEngine(t, func(t *testing.T, e *Engine) {
		f := func(x []*graph.Node) []*graph.Node {
			g := x[0].Graph()
			places := graph.Const(g, [][]int32{{3}, {0}})
			return []*graph.Node{graph.ScatterSum(graph.Zeros(g, shapes.Make(dtypes.Float32, 4, 2)), places, x[0],
				false, true)}
		}
		in := []tensor{{dims: []int{2, 2}, data: []float32{1, 2, 3, 4}}}
		near(t, e.Name, evaluate(t, e, in, f), [][]float32{{3, 4, 0, 0, 0, 0, 1, 2}}, 0)
	})
}

// Trap 2. GoMLX's attention, with fusion allowed, must not use onnx's fused attention, which repeats key heads in the
// wrong order for grouped queries and misreads a mask if the length equals the number of heads.
func TestGroupedQueryAttentionIsExact(t *testing.T) {
	const length, heads, kvHeads, width = 4, 4, 2, 3
	r := rand.New(rand.NewPCG(6, 5))
	in := []tensor{randomTensor(r, 1, length, heads, width), randomTensor(r, 1, length, kvHeads, width),
		randomTensor(r, 1, length, kvHeads, width)}
	for _, fused := range []bool{true, false} {
		f := withGradients(func(x []*graph.Node) *graph.Node {
			y, _ := attention.Core(x[0], x[1], x[2], attention.LayoutBSHD,
				attention.CoreOptions{UseCausalMask: true, DisableFusion: !fused})
			return y
		})
		want := evaluate(t, openTestGo(t), in, f)
		near(t, fmt.Sprintf("fusion allowed: %t", fused), evaluate(t, openTestONNX(t), in, f), want, 1e-5)
	}
}

// Softmax is the only fused operation in use: it must equal the plain one, also with a mask's large negative numbers.
func TestFusedSoftmaxEqualsPlain(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 6))
	x := randomTensor(r, 3, 4, 7)
	for i := range x.data {
		if i%5 == 0 {
			x.data[i] = -1e9
		}
	}
	eachEngine(t, func(t *testing.T, e *Engine) {
		fused := evaluate(t, e, []tensor{x},
			withGradients(func(x []*graph.Node) *graph.Node { return graph.Softmax(x[0]) }))
		plain := evaluate(t, e, []tensor{x}, withGradients(func(x []*graph.Node) *graph.Node {
			p := graph.Exp(graph.Sub(x[0], graph.StopGradient(graph.ReduceAndKeep(x[0], graph.ReduceMax, -1))))
			return graph.Div(p, graph.ReduceAndKeep(p, graph.ReduceSum, -1))
		}))
		near(t, e.Name, fused, plain, 1e-6)
	})
}

// Trap 3. A weight is an input: writing to its buffer changes the next run's result without compiling again.
func TestWeightsAreReadAnewByEachRun(t *testing.T) {
	eachEngine(t, func(t *testing.T, e *Engine) {
		p, err := e.Compile("scale", func(g *graph.Graph) []*graph.Node {
			w := graph.Parameter(g, "w", shapes.Make(dtypes.Float32, 2))
			return []*graph.Node{graph.MulScalar(w, 10)}
		})
		expect.OK(t, err)
		defer p.Close()
		w, view, err := e.SharedFloat32(2)
		expect.OK(t, err)
		defer FinalizeAll(w)
		for _, value := range []float32{0, 1, 2} {
			view[0], view[1] = value, -value
			near(t, e.Name, runOnce(t, p, []compute.Buffer{w}), [][]float32{{10 * value, -10 * value}}, 0)
		}
	})
}

// The same for GoMLX's variables: onnx would make the untrained ones constants of the graph.
func TestVariablesAreNotBakedIn(t *testing.T) {
	eachEngine(t, func(t *testing.T, e *Engine) {
		store := model.NewStore()
		v := store.RootScope().VariableWithValue("counter", float32(1)).SetTrainable(false)
		exec, err := model.NewExec(e.Backend, store, func(scope *model.Scope, x *graph.Node) *graph.Node {
			return graph.Mul(x, v.NodeValue(x.Graph()))
		})
		expect.OK(t, err)
		defer exec.Finalize()
		for _, value := range []float32{1, 5} {
			expect.OK(t, v.SetValue(tensors.FromValue(value)))
			got := expect.Must(exec.Call1(float32(3)))(t)
			if tensors.ToScalar[float32](got) != 3*value {
				t.Errorf("counter %g: got %v, want %g", value, got, 3*value)
			}
		}
	})
}

// residentMB is the memory in use by this process, native memory included.
func residentMB(t *testing.T) int {
	t.Helper()
	own := ResidentMemory()
	if own == 0 {
		need.Lack(t, "linux", "no /proc/self/statm: memory cannot be measured")
	}
	return int(own >> 20)
}

// Trap 4. ONNX Runtime's memory is not Go's: 300 runs with inputs and outputs of 1 MB must give theirs back.
func TestRunsKeepNoNativeMemory(t *testing.T) {
	e := openTestONNX(t)
	p, err := e.Compile("copy", func(g *graph.Graph) []*graph.Node {
		x := graph.Parameter(g, "x", shapes.Make(dtypes.Float32, 1<<18))
		return []*graph.Node{graph.AddScalar(x, 1), graph.ReduceAllSum(x)}
	})
	expect.OK(t, err)
	defer p.Close()
	data := make([]float32, 1<<18)
	step := func() {
		x := expect.Must(e.Float32(data, 1<<18))(t)
		out := expect.Must(p.Run([]compute.Buffer{x}, nil))(t)
		FinalizeAll(append(out, x)...)
	}
	for range 20 {
		step()
	}
	before := residentMB(t)
	for range 300 {
		step()
	}
	if grown := residentMB(t) - before; grown > 60 {
		t.Errorf("300 runs grew the process by %d MB, want under 60 (a leak would keep 300 or 600)", grown)
	}
}

// Trap 6. Closing a program frees its arena at once, whatever the garbage collector does.
func TestCloseFreesTheArena(t *testing.T) {
	e := openTestONNX(t)
	p, err := e.Compile("arena", func(g *graph.Graph) []*graph.Node {
		x := graph.Parameter(g, "x", shapes.Make(dtypes.Float32, 1<<21))
		y := x
		for range 16 { // each kept for the gradient: 128 MB
			y = graph.Tanh(y)
		}
		return graph.Gradient(graph.ReduceAllSum(y), x)
	})
	expect.OK(t, err)
	x := expect.Must(e.Float32(make([]float32, 1<<21), 1<<21))(t)
	defer FinalizeAll(x)
	runOnce(t, p, []compute.Buffer{x})
	before := residentMB(t)
	p.Close()
	if freed := before - residentMB(t); freed < 64 {
		t.Errorf("closing freed %d MB, want at least 64", freed)
	}
	if _, err := p.Run([]compute.Buffer{x}, nil); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("run a closed program: got %v, want an error that says so", err)
	}
}

// Trap 7. The barrier that gradient checkpoints use must not change an infinite adjoint.
func TestCheckpointKeepsInfinities(t *testing.T) {
	eachEngine(t, func(t *testing.T, e *Engine) {
		in := []tensor{{dims: []int{2}, data: []float32{0, 4}}}
		got := evaluate(t, e, in, func(x []*graph.Node) []*graph.Node {
			y := graph.MulScalar(x[0].Checkpoint(), 1).StopCheckpoint()
			z := graph.Add(graph.Sqrt(y), graph.Square(graph.MulScalar(x[0].Checkpoint(), 2)).StopCheckpoint())
			return graph.Gradient(graph.ReduceAllSum(z), x[0])
		})[0]
		if !math.IsInf(float64(got[0]), 1) || got[1] != 0.25+32 {
			t.Errorf("got %v, want [+Inf 32.25]", got)
		}
		barrier := evaluate(t, e, []tensor{{dims: []int{1}, data: []float32{0}},
			{dims: []int{2}, data: []float32{1, 2}}}, func(x []*graph.Node) []*graph.Node {
			infinite := graph.Div(graph.OnesLike(x[0]), x[0])
			return []*graph.Node{graph.SchedulingBarrier(x[1], infinite)}
		})
		near(t, "barrier", barrier, [][]float32{{1, 2}}, 0)
	})
}

// Trap 8. onnx has no Rsqrt and no engine has its gradient: both are errors when compiling. 1/Sqrt works.
func TestRsqrtIsAnErrorAndSqrtWorks(t *testing.T) {
	eachEngine(t, func(t *testing.T, e *Engine) {
		_, err := e.Compile("rsqrt", func(g *graph.Graph) []*graph.Node {
			x := graph.Parameter(g, "x", shapes.Make(dtypes.Float32, 2))
			return graph.Gradient(graph.ReduceAllSum(graph.Rsqrt(x)), x)
		})
		expect.Error(t, err, "Rsqrt")
		in := []tensor{{dims: []int{2}, data: []float32{4, 16}}}
		got := evaluate(t, e, in,
			withGradients(func(x []*graph.Node) *graph.Node { return graph.Reciprocal(graph.Sqrt(x[0])) }))
		near(t, e.Name, got, [][]float32{{0.5, 0.25}, {0, -1.0 / 128}}, 1e-6)
	})
}

// trainingLike is two layers of attention with a loss: the gradients and the loss.
func trainingLike(x []*graph.Node) []*graph.Node {
	y := x[0] // [rows, width]
	for range 2 {
		q := graph.Reshape(graph.DotGeneral(y, []int{1}, nil, x[1], []int{1}, nil), 4, 32, 4, 16)
		k := graph.Reshape(graph.DotGeneral(y, []int{1}, nil, x[2], []int{1}, nil), 4, 32, 4, 16)
		p := graph.Softmax(graph.DotGeneral(q, []int{3}, []int{0, 2}, k, []int{3}, []int{0, 2}))
		o := graph.DotGeneral(p, []int{3}, []int{0, 1}, k, []int{1}, []int{0, 2})
		y = graph.Add(y, graph.Reshape(graph.TransposeAllAxes(o, 0, 2, 1, 3), 128, 64))
	}
	loss := graph.ReduceAllMean(graph.Square(y))
	return append(graph.Gradient(loss, x...), loss)
}

func trainingLikeHash(t *testing.T, e *Engine) string {
	r := rand.New(rand.NewPCG(6, 8))
	in := []tensor{randomTensor(r, 128, 64), randomTensor(r, 64, 64), randomTensor(r, 64, 64)}
	h := fnv.New64a()
	for _, out := range evaluate(t, e, in, trainingLike) {
		for _, v := range out {
			fmt.Fprint(h, math.Float32bits(v), " ")
		}
	}
	return fmt.Sprintf("hash-%016x", h.Sum64())
}

// The same program gives the same bits again and in another process. Exact resuming depends on this.
func TestSameBitsInEveryRunAndProcess(t *testing.T) {
	eachEngine(t, func(t *testing.T, e *Engine) {
		if isChild(t) {
			fmt.Println(trainingLikeHash(t, e))
			return
		}
		first := trainingLikeHash(t, e)
		for run := range 5 {
			if again := trainingLikeHash(t, e); again != first {
				t.Fatalf("run %d: %s, want %s as in the first run", run+2, again, first)
			}
		}
		for range 2 {
			if out := runChild(t, 60*time.Second); !strings.Contains(out, first) {
				t.Fatalf("another process gives other bits: want %s in\n%s", first, out)
			}
		}
	})
}
