package protocol_test

import (
	"context"
	"testing"

	"github.com/posttrain/posttrain/federated"
	"github.com/posttrain/posttrain/federated/control"
	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// liar is a workload whose gradient is −1000 times what it should be.
type liar struct{ protocol.Workload }

type lie struct{ protocol.Batch }

func (w liar) Collect(ctx context.Context, params []float64, version int) (protocol.Batch, error) {
	b, err := w.Workload.Collect(ctx, params, version)
	return lie{b}, err
}

func (b lie) Gradient() ([]float64, error) {
	g, err := b.Batch.Gradient()
	return federated.Scaled(-1000, g), err
}

// last is the mean return of the last 200 of 1000 updates of AFedPG on cartpole by eight agents.
func last(t *testing.T, seed uint64, clip float64, lies bool) float64 {
	t.Helper()
	o := protocol.Defaults(protocol.AFedPG)
	o.Agents, o.Clip, o.Updates = 8, clip, new(1000)
	c := control.DefaultOptions()
	c.Hidden, c.Steps = []int{16}, 600
	var agents []*protocol.Agent
	var start []float64
	for i := range o.Agents {
		own := expect.Must(control.New(c, i, seed))(t)
		var w protocol.Workload = own
		if start = w.Start(); lies && i == 3 {
			w = liar{w}
		}
		a := expect.Must(protocol.NewAgent(i, w, o))(t)
		agents = append(agents, a)
	}
	server := expect.Must(protocol.NewServer(o, start, seed))(t)
	s := expect.Must(protocol.NewSimulation(server, agents, []float64{1, 1, 1, 1, 1, 1, 1, 1}))(t)
	s.JoinAll(t.Context())
	sum, n := 0.0, 0
	for _, e := range follow(t, s) {
		if r, ok := e.Receipt.Metrics["return"]; ok && e.Receipt.Metrics["version"] > 800 {
			sum, n = sum+r, n+1
		}
	}
	return sum / float64(n)
}

// TestMaliciousAgent is acceptance 15: one agent of eight sends −1000·g, and cartpole ends within 20 % of the
// undisturbed return; without the guard it does not.
func TestMaliciousAgent(t *testing.T) {
	const seeds = 3
	honest, guarded := 0.0, 0.0
	for seed := range uint64(seeds) {
		honest += last(t, seed, 3, false) / seeds
		guarded += last(t, seed, 3, true) / seeds
	}
	open := last(t, 0, 0, true)
	t.Logf("return %.0f undisturbed, %.0f with a liar, %.0f with a liar and no guard", honest, guarded, open)
	if guarded < 0.8*honest {
		t.Errorf("return %.0f with a liar: want at least 80 %% of %.0f", guarded, honest)
	}
	if open > 0.2*honest {
		t.Errorf("return %.0f without a guard: this test shows nothing", open)
	}
}
