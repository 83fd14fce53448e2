package losses

import (
	"math"
	"sync"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/gobackend"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// engine is the pure Go engine, opened once.
var engine = sync.OnceValue(func() compute.Backend {
	b, err := gobackend.New("parallelism=-1")
	if err != nil {
		panic(err)
	}
	return b
})

// runGraph runs the float32 graph of a loss, and the gradients of the SUM of the losses.
func runGraph(t *testing.T, o Options, b Batch) Outcome {
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
		loss := o.Graph(in)
		return append([]*graph.Node{loss}, graph.Gradient(graph.ReduceAllSum(loss), n[0], n[1])...)
	})
	expect.OK(t, err)
	defer exec.Finalize()
	results := expect.Must(exec.Call(vectors...))(t)
	var v [3][]float64
	for i, r := range results {
		for _, x := range r.Value().([]float32) {
			v[i] = append(v[i], float64(x))
		}
	}
	return Outcome{Loss: v[0], GradChosen: v[1], GradRejected: v[2]}
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
		want := expect.Must(o.Host(b))(t)
		got := runGraph(t, o, b)
		name := describe(o)
		nearAll(t, name+" loss", got.Loss, want.Loss, 2e-5)
		nearAll(t, name+" grad chosen", got.GradChosen, want.GradChosen, 2e-5)
		nearAll(t, name+" grad rejected", got.GradRejected, want.GradRejected, 2e-5)
	}
}

func TestGraphExtremeMarginsStayFinite(t *testing.T) {
	for _, o := range everyOption() {
		b := extremeBatch()
		got := runGraph(t, o, b)
		for _, v := range [][]float64{got.Loss, got.GradChosen, got.GradRejected} {
			wantFinite(t, describe(o), v)
		}
		want := expect.Must(o.Host(b))(t)
		nearAll(t, describe(o)+" loss", got.Loss, want.Loss, 2e-6)
		nearAll(t, describe(o)+" grad chosen", got.GradChosen, want.GradChosen, 2e-6)
	}
}

// NaN in any input makes the pair's loss NaN, in the graph as on the host: that ends a run. The other pairs are as they
// were.
func TestNaNStaysNaN(t *testing.T) {
	for _, o := range everyOption() {
		whole := runGraph(t, o, randomBatch(2, 5))
		for place := range 5 {
			b := randomBatch(2, 5)
			vectors := [][]float64{b.PolicyChosen, b.PolicyRejected, b.ReferenceChosen, b.ReferenceRejected, b.RewardGap}
			if place == 4 && !o.NeedsGap() || (place == 2 || place == 3) && o.ReferenceFree() {
				continue
			}
			vectors[place][1] = math.NaN()
			host := expect.Must(o.Host(b))(t)
			got := runGraph(t, o, b)
			if !math.IsNaN(host.Loss[1]) || !math.IsNaN(got.Loss[1]) {
				t.Errorf("%s, NaN in vector %d: loss %v on the host, %v in the graph", describe(o), place, host.Loss[1],
					got.Loss[1])
			}
			if got.Loss[0] != whole.Loss[0] || got.GradChosen[0] != whole.GradChosen[0] {
				t.Errorf("%s, NaN in vector %d changes the other pair", describe(o), place)
			}
		}
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
	got := runGraph(t, o, b)
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
