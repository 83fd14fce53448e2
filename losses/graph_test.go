package losses

import (
	"math"
	"sync"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/gobackend"
	"github.com/gomlx/gomlx/core/graph"
)

// engine is the pure Go engine, opened once.
var engine = sync.OnceValue(func() compute.Backend {
	b, err := gobackend.New("parallelism=-1")
	if err != nil {
		panic(err)
	}
	return b
})

// runGraph runs the float32 graph of a loss: its diagnostics, and the gradients of the SUM of the losses.
func runGraph(t *testing.T, o Options, b Batch) (out Outcome, margins []float64) {
	t.Helper()
	vectors := []any{toFloat32(b.PolicyChosen), toFloat32(b.PolicyRejected), toFloat32(b.ChosenLengths),
		toFloat32(b.RejectedLengths)}
	if !o.ReferenceFree() {
		vectors = append(vectors, toFloat32(b.ReferenceChosen), toFloat32(b.ReferenceRejected))
	}
	if o.NeedsGap() {
		vectors = append(vectors, toFloat32(b.RewardGap))
	}
	exec, err := graph.NewExec(engine(), func(n []*graph.Node) []*graph.Node {
		in := Inputs{PolicyChosen: n[0], PolicyRejected: n[1], ChosenLengths: n[2], RejectedLengths: n[3]}
		if !o.ReferenceFree() {
			in.ReferenceChosen, in.ReferenceRejected = n[4], n[5]
		}
		if o.NeedsGap() {
			in.RewardGap = n[len(n)-1]
		}
		r := o.Graph(in)
		g := graph.Gradient(graph.ReduceAllSum(r.Loss), n[0], n[1])
		return []*graph.Node{r.Loss, r.ChosenRewards, r.RejectedRewards, g[0], g[1], r.Margins}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer exec.Finalize()
	results, err := exec.Exec(vectors...)
	if err != nil {
		t.Fatal(err)
	}
	var v [6][]float64
	for i, r := range results {
		for _, x := range r.Value().([]float32) {
			v[i] = append(v[i], float64(x))
		}
	}
	return Outcome{Loss: v[0], ChosenRewards: v[1], RejectedRewards: v[2], GradChosen: v[3], GradRejected: v[4]}, v[5]
}

func toFloat32(v []float64) []float32 {
	out := make([]float32, len(v))
	for i, x := range v {
		out[i] = float32(x)
	}
	return out
}

func nearAll(t *testing.T, what string, got, want []float64, relative float64) {
	t.Helper()
	for i := range want {
		near(t, what, got[i], want[i], relative*math.Abs(want[i])+1e-30)
	}
}

// Inputs that float32 holds exactly, so that only the graph's own arithmetic is seen.
func TestGraphEqualsHost(t *testing.T) {
	for _, o := range everyOption() {
		b := randomBatch(16, 17)
		for _, v := range [][]float64{b.PolicyChosen, b.PolicyRejected, b.ReferenceChosen, b.ReferenceRejected,
			b.RewardGap} {
			for i := range v {
				v[i] = math.Round(v[i]*64) / 64
			}
		}
		want, err := o.Host(b)
		if err != nil {
			t.Fatal(err)
		}
		got, margins := runGraph(t, o, b)
		name := describe(o)
		nearAll(t, name+" loss", got.Loss, want.Loss, 2e-5)
		nearAll(t, name+" grad chosen", got.GradChosen, want.GradChosen, 2e-5)
		nearAll(t, name+" grad rejected", got.GradRejected, want.GradRejected, 2e-5)
		nearAll(t, name+" chosen rewards", got.ChosenRewards, want.ChosenRewards, 2e-6)
		nearAll(t, name+" rejected rewards", got.RejectedRewards, want.RejectedRewards, 2e-6)
		for i := range margins {
			near(t, name+" margin", margins[i], want.ChosenRewards[i]-want.RejectedRewards[i], 1e-5)
		}
	}
}

func TestGraphExtremeMarginsStayFinite(t *testing.T) {
	for _, o := range everyOption() {
		b := extremeBatch()
		got, margins := runGraph(t, o, b)
		for _, v := range [][]float64{got.Loss, got.GradChosen, got.GradRejected, got.ChosenRewards,
			got.RejectedRewards, margins} {
			wantFinite(t, describe(o), v)
		}
		want, err := o.Host(b)
		if err != nil {
			t.Fatal(err)
		}
		nearAll(t, describe(o)+" loss", got.Loss, want.Loss, 2e-6)
		nearAll(t, describe(o)+" grad chosen", got.GradChosen, want.GradChosen, 2e-6)
	}
}

// Training starts at u = 0, where a derivative taken through |u| or max would be wrong; and a large margin's gradient
// is small, not zero: σ(-30) = 9.4e-14.
func TestGraphGradientAtTheEdges(t *testing.T) {
	o := plain(Defaults(DPO))
	o.Beta = 1
	b := Batch{
		PolicyChosen: []float64{-7, -10, -40}, PolicyRejected: []float64{-9, -40, -10},
		ReferenceChosen: []float64{-7, -25, -25}, ReferenceRejected: []float64{-9, -25, -25},
		ChosenLengths: []float64{3, 3, 3}, RejectedLengths: []float64{3, 3, 3},
	}
	got, _ := runGraph(t, o, b)
	nearAll(t, "loss", got.Loss, []float64{math.Ln2, math.Exp(-30), 30}, 1e-6)
	nearAll(t, "grad chosen", got.GradChosen, []float64{-0.5, -math.Exp(-30), -1}, 1e-6)
}

func TestGraphPanicsOnAMissingInput(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("Graph accepts missing inputs, want a panic")
		}
	}()
	Defaults(DPO).Graph(Inputs{})
}

func TestOnlyTheLossHasAGradient(t *testing.T) {
	grad, err := graph.NewExec(engine(), func(x *graph.Node) *graph.Node {
		one := graph.OnesLike(x)
		r := Defaults(CPO).Graph(Inputs{PolicyChosen: x, PolicyRejected: graph.Neg(x), ChosenLengths: one,
			RejectedLengths: one, RewardGap: one})
		sum := graph.Add(graph.Add(r.ChosenRewards, r.RejectedRewards), r.Margins)
		return graph.Gradient(graph.ReduceAllSum(sum), x)[0]
	})
	if err != nil {
		t.Fatal(err)
	}
	defer grad.Finalize()
	out, err := grad.Exec([]float32{-3, 4})
	if err != nil {
		t.Fatal(err)
	}
	if g := out[0].Value().([]float32); g[0] != 0 || g[1] != 0 {
		t.Errorf("gradient %v, want zeros", g)
	}
}
