package losses

import (
	"math"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// TestBradleyTerry: graph and host agree, also far from 0; numbers by hand.
func TestBradleyTerry(t *testing.T) {
	chosen, rejected := []float64{0, 1, -2, 90, -90}, []float64{0, 0.5, 1, -90, 90}
	margin := []float64{0, 0.25, 0, 1, 0}
	for _, o := range []BradleyTerry{{}, {Center: 0.01}} {
		exec, err := graph.NewExec(engine(), func(n []*graph.Node) []*graph.Node {
			loss := o.Graph(n[0], n[1], n[2])
			return append([]*graph.Node{loss}, graph.Gradient(graph.ReduceAllSum(loss), n[0], n[1])...)
		})
		expect.OK(t, err)
		defer exec.Finalize()
		results := expect.Must(exec.Call(toFloat32(chosen), toFloat32(rejected), toFloat32(margin)))(t)
		var got [3][]float64
		for i, r := range results {
			for _, x := range r.Value().([]float32) {
				got[i] = append(got[i], float64(x))
			}
		}
		var loss, ofChosen, ofRejected []float64
		for i := range chosen {
			c, r, m := chosen[i], rejected[i], margin[i]
			loss = append(loss, o.Host(c, r, m))
			slope, centre := -1/(1+math.Exp(c-r-m)), 2*o.Center*(c+r)
			ofChosen, ofRejected = append(ofChosen, slope+centre), append(ofRejected, -slope+centre)
		}
		nearAll(t, "loss", got[0], loss, 1e-6)
		nearAll(t, "gradient of chosen", got[1], ofChosen, 1e-6)
		nearAll(t, "gradient of rejected", got[2], ofRejected, 1e-6)
	}
	for want, got := range map[float64]float64{
		math.Ln2: BradleyTerry{}.Host(3, 3, 0), 180: BradleyTerry{}.Host(-90, 90, 0),
		math.Log1p(math.Exp(-0.25)) + 0.0225: BradleyTerry{Center: 0.01}.Host(1, 0.5, 0.25)} {
		if math.Abs(got-want) > 1e-12 {
			t.Errorf("%v, want %v", got, want)
		}
	}
}
