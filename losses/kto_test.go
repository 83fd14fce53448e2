package losses

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// Numbers that a reader can check by hand: log-ratios 2 and -1, reference point 0.5.
func TestUnpairedHandNumbers(t *testing.T) {
	o := Defaults(KTO)
	o.Beta, o.DesirableWeight, o.UndesirableWeight = 0.2, new(1.5), new(0.5)
	out := expect.Must(o.UnpairedHost(UnpairedBatch{Policy: []float64{-10, -20, -10, -20},
		Reference: []float64{-12, -19, -12, -19}, Desirable: []bool{true, true, false, false}, Point: 0.5}))(t)
	up := func(u float64) float64 { return 1 / (1 + math.Exp(-u)) }
	for i, want := range []struct{ loss, reward, grad float64 }{
		{1.5 * up(-0.3), 0.4, -1.5 * 0.2 * up(0.3) * up(-0.3)}, // β(2 - 0.5) = 0.3
		{1.5 * up(0.3), -0.2, -1.5 * 0.2 * up(0.3) * up(-0.3)}, // β(-1 - 0.5) = -0.3
		{0.5 * up(0.3), 0.4, 0.5 * 0.2 * up(0.3) * up(-0.3)},   // β(0.5 - 2) = -0.3
		{0.5 * up(-0.3), -0.2, 0.5 * 0.2 * up(0.3) * up(-0.3)}, // β(0.5 + 1) = 0.3
	} {
		near(t, "loss", out.Loss[i], want.loss, 1e-12)
		near(t, "reward", out.Rewards[i], want.reward, 1e-12)
		near(t, "grad", out.Grad[i], want.grad, 1e-12)
	}
}

// randomResponses are n responses with log-ratios of a few units, which float32 holds exactly.
func randomResponses(n int) UnpairedBatch {
	r, b := rand.New(rand.NewPCG(3, 1)), UnpairedBatch{Point: 0.25}
	round := func(x float64) float64 { return math.Round(x*64) / 64 }
	for i := range n {
		b.Reference = append(b.Reference, round(-2-20*r.Float64()))
		b.Policy = append(b.Policy, b.Reference[i]+round(3*r.NormFloat64()))
		b.Desirable = append(b.Desirable, i%3 == 0)
	}
	return b
}

func TestUnpairedGradientsAreFiniteDifferences(t *testing.T) {
	const h = 1e-5
	o, b := Defaults(KTO), randomResponses(9)
	o.Beta, o.DesirableWeight = 0.4, new(2.0)
	at := func(i int, x float64) float64 {
		moved := b
		moved.Policy = append([]float64(nil), b.Policy...)
		moved.Policy[i] = x
		out := expect.Must(o.UnpairedHost(moved))(t)
		return out.Loss[i]
	}
	out := expect.Must(o.UnpairedHost(b))(t)
	for i, x := range b.Policy {
		near(t, fmt.Sprint("response ", i), out.Grad[i], (at(i, x+h)-at(i, x-h))/(2*h), 1e-8)
	}
}

func TestUnpairedGraphEqualsHost(t *testing.T) {
	b := randomResponses(16)
	b.Policy, b.Reference = append(b.Policy, 1e6, -1e6, -5, 0), append(b.Reference, -1e6, 1e6, -5, 0)
	b.Desirable = append(b.Desirable, false, false, true, true)
	for _, o := range []Options{Defaults(KTO), {Type: KTO, Prior: None, Beta: 0.5, UndesirableWeight: new(3.0)}} {
		want := expect.Must(o.UnpairedHost(b))(t)
		loss, grad := runUnpaired(t, o, b)
		wantFinite(t, "loss", loss)
		wantFinite(t, "grad", grad)
		nearAll(t, "loss", loss, want.Loss, 2e-5)
		nearAll(t, "grad", grad, want.Grad, 2e-5)
	}
}

// runUnpaired runs the float32 graph: losses, and the gradients of their sum.
func runUnpaired(t *testing.T, o Options, b UnpairedBatch) (loss, grad []float64) {
	t.Helper()
	exec, err := graph.NewExec(engine(), func(n []*graph.Node) []*graph.Node {
		loss := o.UnpairedGraph(UnpairedInputs{Policy: n[0], Reference: n[1], Desirable: n[2], Point: n[3]})
		return []*graph.Node{loss, graph.Gradient(graph.ReduceAllSum(loss), n[0])[0]}
	})
	expect.OK(t, err)
	defer exec.Finalize()
	labels := make([]float32, len(b.Desirable))
	for i, yes := range b.Desirable {
		if yes {
			labels[i] = 1
		}
	}
	out := expect.Must(exec.Call(toFloat32(b.Policy), toFloat32(b.Reference), labels, []float32{float32(b.Point)}))(t)
	for i, into := range []*[]float64{&loss, &grad} {
		for _, x := range out[i].Value().([]float32) {
			*into = append(*into, float64(x))
		}
	}
	return loss, grad
}

// A loss of pairs and one of single responses are not mistaken for each other.
func TestUnpairedIsNotPaired(t *testing.T) {
	_, err := Defaults(KTO).Host(onePair())
	if err == nil || !strings.Contains(err.Error(), "kto is no loss of pairs") {
		t.Error(err)
	}
	if _, err := Defaults(DPO).UnpairedHost(UnpairedBatch{}); err == nil || !strings.Contains(err.Error(), "want kto") {
		t.Error(err)
	}
	if _, err := Defaults(KTO).UnpairedHost(UnpairedBatch{Policy: []float64{1}}); err == nil {
		t.Error("a response without a label is accepted")
	}
	defer func() {
		if recover() == nil {
			t.Error("Graph accepts kto, want a panic")
		}
	}()
	Defaults(KTO).Graph(Inputs{})
}

func TestAdviseWeights(t *testing.T) {
	for _, c := range []struct {
		desirable, undesirable int
		weight                 float64
		says                   string
	}{
		{10, 10, 1, ""}, {30, 40, 4. / 3, ""}, {30, 40, 16. / 9, ""}, {0, 5, 1, ""},
		{12, 36, 1, "12 desirable responses with loss.desirable_weight 1 and 36 undesirable ones with " +
			"loss.undesirable_weight 1: the paper of KTO advises a desirable_weight from 3 to 4 here"},
		{10, 10, 1.5, "from 1 to 1.33 here"},
	} {
		o := Defaults(KTO)
		*o.DesirableWeight = c.weight
		if got := o.AdviseWeights(c.desirable, c.undesirable); (got == "") != (c.says == "") ||
			!strings.Contains(got, c.says) {
			t.Errorf("%d and %d: %q, want %q", c.desirable, c.undesirable, got, c.says)
		}
	}
	if got := Defaults(DPO).AdviseWeights(1, 9); got != "" {
		t.Error(got)
	}
}
