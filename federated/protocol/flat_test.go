package protocol_test

import (
	"math"
	"testing"

	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// TestFlatUpdates: zeros of an agent whose samples are all as good as each other count in every method, as a version,
// as samples and in the method's formula. The same zeros without that word are refused where they are a gradient.
func TestFlatUpdates(t *testing.T) {
	for _, method := range protocol.Methods() {
		o := options(method)
		o.Clip, o.Agents, o.Samples = 3, 1, 0
		s := expect.Must(protocol.NewServer(o, []float64{1, 2}, 1))(t)
		answer := func(sends []protocol.Send, x float64, flat bool) (protocol.Receipt, []protocol.Send) {
			task := sends[0].Task
			u := protocol.Update{Kind: task.Kind, Version: task.Version, Vectors: [][]float64{{3 * x, 4 * x}},
				Stats: protocol.Stats{Steps: 5, Episodes: 1, Return: 1, Flat: flat}}
			if task.Kind == protocol.Solve {
				u.Vectors = append(u.Vectors, u.Vectors[0])
			}
			return s.Receive(u)
		}
		r, sends := answer(second(s.Join(0)), 0, true)
		if !r.Accepted || !r.Stepped || s.Version() != 1 || r.Metrics["samples"] != 5 || r.Metrics["flat"] != 1 {
			t.Errorf("%s: %+v", method, r)
		}
		for _, x := range s.Params() {
			if math.IsNaN(x) {
				t.Errorf("%s: parameters %v", method, s.Params())
			}
		}
		gradient := sends[0].Task.Kind == protocol.Gradient
		asynchronous := protocol.Asynchronous(method)
		if r, _ = answer(sends, 0, false); r.Accepted == (gradient || asynchronous) {
			t.Errorf("%s: zeros without a reason: %+v", method, r)
		}
	}
}

// TestFlatGradientByHand: AFedPG's step with g = 0 is along what it remembers: with η = 1 and d of length 5 along
// (3, 4), θ moves by (0.6, 0.8) and then by the same again. At the start it remembers nothing, and θ stays.
func TestFlatGradientByHand(t *testing.T) {
	o := protocol.Defaults(protocol.AFedPG)
	o.Agents, o.LR, o.Rate = 1, new(1.0), new("published")
	s := expect.Must(protocol.NewServer(o, []float64{0, 0}, 1))(t)
	_, sends := s.Join(0)
	for i, c := range []struct{ g, want []float64 }{
		{[]float64{0, 0}, []float64{0, 0}},
		{[]float64{3, 4}, []float64{0.6, 0.8}},
		{[]float64{0, 0}, []float64{1.2, 1.6}},
	} {
		var r protocol.Receipt
		r, sends = s.Receive(protocol.Update{Kind: protocol.Gradient, Version: sends[0].Task.Version,
			Vectors: [][]float64{c.g}, Stats: protocol.Stats{Flat: true}})
		if got := s.Params(); !r.Stepped || math.Abs(got[0]-c.want[0])+math.Abs(got[1]-c.want[1]) > 1e-12 {
			t.Errorf("update %d: %v, want %v; %+v", i, got, c.want, r)
		}
	}
}
