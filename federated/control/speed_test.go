package control

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/internal/testkit/need"
)

// BenchmarkSwimmer measures the parts of a round of configs/federated/swimmer-fednpg-admm.yaml in one agent: the
// environment's step alone, then a batch of 2,048 steps with its critic, its gradient, and a product with its Fisher
// matrix, of which a round has up to 15.
func BenchmarkSwimmer(b *testing.B) {
	o := DefaultOptions()
	o.Environment, o.Hidden, o.Activation, o.OutputTanh = "swimmer", []int{64, 64}, string(relu), true
	o.Steps, o.Critic = 2048, CriticOptions{LR: 3e-4, Epochs: 10, Minibatch: 64}
	w, err := New(o, 0, 1)
	if err != nil {
		need.Lack(b, "mujoco", err.Error())
	}
	b.Run("step", func(b *testing.B) {
		r, x := rand.New(rand.NewPCG(1, 1)), make([]float64, w.space.observations)
		w.env.Reset(r, x)
		for b.Loop() {
			w.env.Step([]float64{2*r.Float64() - 1, 2*r.Float64() - 1}, x)
		}
	})
	theta := w.Start()
	batch := expect.Must(w.Collect(context.Background(), theta, 0))(b)
	b.Run("batch", func(b *testing.B) {
		for b.Loop() {
			expect.Must(w.Collect(context.Background(), theta, 1))(b)
		}
	})
	b.Run("gradient", func(b *testing.B) {
		for b.Loop() {
			batch.Gradient()
		}
	})
	b.Run("product", func(b *testing.B) {
		for b.Loop() {
			batch.(protocol.Natural).Product(theta)
		}
	})
}
