package control

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/posttrain/posttrain/federated/protocol"
)

// BenchmarkSample samples cartpole with a policy and a critic of 2×64 units; a second is this many steps/s.
func BenchmarkSample(b *testing.B) { benchmark(b, func(*batch) {}) }

// BenchmarkGradient adds the policy gradient.
func BenchmarkGradient(b *testing.B) { benchmark(b, func(x *batch) { x.Gradient() }) }

func BenchmarkProduct(b *testing.B) {
	w, theta := started(b, wide())
	batch, err := w.Collect(b.Context(), theta, 0)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		batch.(protocol.Natural).Product(theta)
	}
	b.ReportMetric(float64(b.N*w.options.Steps)/b.Elapsed().Seconds(), "steps/s")
}

func BenchmarkFit(b *testing.B) {
	w, theta := started(b, wide())
	for k := 0; b.Loop(); k++ {
		if _, err := w.Collect(context.Background(), theta, k); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N*w.options.Steps)/b.Elapsed().Seconds(), "steps/s")
}

// BenchmarkChapters is a round of an agent of the chapters' sizes, with 10 Fisher products. It needs MuJoCo.
func BenchmarkChapters(b *testing.B) {
	for _, c := range []struct {
		environment   string
		layers, width int
		steps         int
	}{{"swimmer", 2, 64, 2048}, {"hopper", 2, 128, 1024}, {"hopper", 2, 256, 1024}, {"walker2d", 2, 512, 1024},
		{"humanoid", 3, 512, 512}} {
		o := DefaultOptions()
		o.Environment, o.Steps, o.Hidden = c.environment, c.steps, slices.Repeat([]int{c.width}, c.layers)
		o.OutputTanh, o.Critic = true, CriticOptions{LR: 3e-4, Epochs: 10, Minibatch: 64}
		b.Run(fmt.Sprintf("%s-%d", c.environment, c.width), func(b *testing.B) { round(b, o) })
	}
}

func round(b *testing.B, o Options) {
	w, theta := started(b, o)
	for version := 0; b.Loop(); version++ {
		x, err := w.Collect(b.Context(), theta, version)
		if err != nil {
			b.Fatal(err)
		}
		x.Gradient()
		for range 10 {
			x.(protocol.Natural).Product(theta)
		}
	}
}

// wide are the default options with 2×64 units of tanh.
func wide() Options {
	o := DefaultOptions()
	o.Hidden, o.Activation = []int{64, 64}, "tanh"
	return o
}

func started(t testing.TB, o Options) (*Workload, []float64) {
	w, err := New(o, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	return w, w.Start()
}

func benchmark(b *testing.B, then func(*batch)) {
	w, theta := started(b, wide())
	batch := &batch{workload: w, theta: theta, samples: w.room()}
	for b.Loop() {
		if _, err := w.sample(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
		then(batch)
	}
	b.ReportMetric(float64(b.N*w.options.Steps)/b.Elapsed().Seconds(), "steps/s")
}
