package control

import (
	"encoding/json"
	"sync"
	"testing"

	"github.com/posttrain/posttrain/federated"
	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// TestLearns: with exact natural gradients, and with PPO, cartpole's return grows at least fivefold in 15 batches.
func TestLearns(t *testing.T) {
	natural := func(b protocol.Batch) []float64 {
		g, _ := b.Gradient()
		cg := federated.CG{Iterations: 15, Tolerance: 1e-10}
		s, err := cg.Solve(federated.Damped(b.(protocol.Natural).Product, 0.1), g, make([]float64, len(g)))
		scale, ok := federated.TrustScale(g, s.X, 0.01, 1)
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		return federated.Scaled(scale, s.X)
	}
	ppo := func(b protocol.Batch) []float64 {
		return expect.Must(b.Train(t.Context(), protocol.Local{Epochs: 5, Minibatch: 64, LR: 3e-3, Clip: 0.2}))(t)
	}
	for name, step := range map[string]func(protocol.Batch) []float64{"natural gradients": natural, "PPO": ppo} {
		o := DefaultOptions()
		o.Hidden = []int{16, 16}
		w, theta := start(t, o)
		var first, last float64
		for k := range 15 {
			b := expect.Must(w.Collect(t.Context(), theta, k))(t)
			theta, last = federated.Ahead(theta, 1, step(b)), b.Stats().Return
			if k == 0 {
				first = last
			}
		}
		if !(last >= 5*first) {
			t.Errorf("%s: a return of %.1f after 15 batches, %.1f at first", name, last, first)
		}
	}
}

// TestParallel: agents that work at the same time draw what they draw alone. The race detector watches.
func TestParallel(t *testing.T) {
	const agents = 4
	gradient := func(agent int) []float64 {
		w, err := New(small(cartpoleName), agent, 1)
		if err != nil {
			return nil
		}
		b, err := w.Collect(t.Context(), w.Start(), 0)
		if err != nil {
			return nil
		}
		g, _ := b.Gradient()
		return g
	}
	var together [agents][]float64
	var group sync.WaitGroup
	for i := range agents {
		group.Go(func() { together[i] = gradient(i) })
	}
	group.Wait()
	for i, g := range together {
		nearAll(t, "gradient", g, gradient(i), 0)
	}
}

// FuzzRestore: a head of any bytes is an error or a state that works.
func FuzzRestore(f *testing.F) {
	o := small("cartpole")
	o.Steps = 10
	w, theta := start(f, o)
	expect.Must(w.Collect(f.Context(), theta, 3))(f)
	good := expect.Must(w.State())(f)
	f.Add([]byte(good.Head))
	f.Add([]byte(`{"version": -1}`))
	f.Add([]byte(`{"version": 1e9, "before": -1}`))
	f.Fuzz(func(t *testing.T, head []byte) {
		w, theta := start(t, o)
		if w.Restore(protocol.State{Head: json.RawMessage(head), Vectors: good.Vectors}) != nil {
			return
		}
		if _, err := w.Collect(t.Context(), theta, 4); err != nil {
			t.Error(err)
		}
	})
}
