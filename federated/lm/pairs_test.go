package lm

import (
	"context"
	"errors"
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/posttrain/posttrain/federated"
	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/internal/adamw"
	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/backend/backendtest"
	rows "github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/losses"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/train"
)

// tinyPairs are seven pairs of several lengths, in batches of three.
func tinyPairs() PairAgent {
	o := train.Defaults()
	o.BatchSize, o.MicroBatchSize, o.Schedule = 3, 2, "constant"
	a := PairAgent{Loss: losses.Defaults(losses.DPO), Train: o,
		Optimizer: adamw.Options{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, MaxNorm: 1}}
	for i := range int32(7) {
		g := rows.Group{Prompt: []int32{3 + i, 9 - i}, Answers: [][]int32{{1 + i, 2, 5 + i}, {4, 8 - i}}}
		a.Pairs = append(a.Pairs, train.Example{Group: g, Gap: float64(i) / 7, Scored: true})
	}
	return a
}

// TestPairGradientIsThatOfAStep: agent 0 sends the bits by which the trainer's step of the same seed moves the weights,
// at the steps of two epochs.
func TestPairGradientIsThatOfAStep(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		p, a := policy(t, e), tinyPairs()
		l := expect.Must(train.NewLearner(e, testkit.Model(t, "llama"), model.GraphOptions{}))(t)
		defer l.Close()
		set := &train.Dataset{Method: &train.Preference{Options: a.Loss}, Examples: slices.Clone(a.Pairs)}
		loop := &train.Trainer{Learner: l, Seed: seed, Options: a.Train, Source: set}
		if loop.Options.LearningRate = 1; loop.Start() != nil {
			t.Fatal(loop.Start())
		}
		sums := expect.Must(train.PairSums(l, train.Groups(set.Examples), set.Layout(), nil))(t)
		for i := range sums {
			set.Examples[i].Reference = sums[i]
		}
		o := &loop.Options // with an optimiser that has no momentum, the first moment is the gradient
		o.MaxSteps, o.LearningRate, o.AdamBeta1, o.AdamBeta2, o.MaxGradNorm = 6, 1e-30, 0, 0, 0
		var steps [][]float32
		loop.OnStep = func(int, int, map[string]float64) {
			tensors, _, err := l.Read()
			expect.OK(t, err)
			steps = append(steps, slices.Concat(tensors.First...))
		}
		expect.OK(t, loop.Run(t.Context()))
		w := NewPairs(p, a, 0, seed)
		for step, g := range steps {
			b := expect.Must(w.Collect(t.Context(), p.start, step))(t)
			got, err := b.Gradient()
			if err != nil || !slices.Equal(got, federated.Scaled(-1, federated.Widen(g))) || federated.Norm(got) == 0 {
				t.Fatalf("step %d: %d numbers, %v: want those of the step", step, len(got), err)
			}
		}
	})
}

// TestPairWorkload: what every workload promises, as far as pairs have it: draws by agent, seed and version; parameters
// that stay; an end on request; and errors that say what was wanted.
func TestPairWorkload(t *testing.T) {
	p := policy(t, backendtest.Go(t))
	send := func(agent int, seed uint64, version int) []float64 {
		w := NewPairs(p, tinyPairs(), agent, seed)
		b := expect.Must(w.Collect(t.Context(), w.Start(), version))(t)
		g := expect.Must(b.Gradient())(t)
		if s := b.Stats(); s.Steps < 1 || s.Steps > 3 || s.Episodes != s.Steps {
			t.Errorf("stats %+v", s)
		}
		return g
	}
	first := send(1, 7, 0)
	if !slices.Equal(send(1, 7, 0), first) {
		t.Error("the same agent, seed and version send something else")
	}
	for i, other := range [][]float64{send(2, 7, 0), send(1, 8, 0), send(1, 7, 1)} {
		if slices.Equal(other, first) {
			t.Errorf("another %s sends the same", []string{"agent", "seed", "version"}[i])
		}
	}
	w := NewPairs(p, tinyPairs(), 1, 7)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.Collect(ended, w.Start(), 0); !errors.Is(err, context.Canceled) {
		t.Errorf("an ended context: %v", err)
	}
	if _, err := w.Collect(t.Context(), make([]float64, 3), 0); err == nil {
		t.Error("three parameters are accepted")
	}
	b := expect.Must(w.Collect(t.Context(), w.Start(), 0))(t)
	if _, ok := b.(protocol.Natural); ok {
		t.Error("pairs have natural gradients")
	}
	change, err := b.Train(t.Context(), protocol.Local{Epochs: 40, Minibatch: 2, LR: 1e-3})
	if err != nil || federated.Norm(change) == 0 {
		t.Errorf("local training moves by %v: %v", federated.Norm(change), err)
	}
}

// TestPairsBeyondTheHinge: where the margin is above 1, gradient and change are 0, and the agent says that this is
// right.
func TestPairsBeyondTheHinge(t *testing.T) {
	a := tinyPairs()
	a.Loss = losses.Defaults(losses.Hinge)
	a.Loss.Prior, a.Loss.Beta, a.Train.BatchSize, a.Train.MicroBatchSize = losses.None, 100, 1, 1
	w := NewPairs(policy(t, backendtest.Go(t)), a, 0, 7)
	collect := func(params []float64) (protocol.Batch, []float64) {
		b := expect.Must(w.Collect(t.Context(), params, 0))(t)
		g := expect.Must(b.Gradient())(t)
		return b, g
	}
	b, g := collect(w.Start())
	if federated.Norm(g) == 0 || b.Stats().Flat {
		t.Fatalf("the gradient at the start has length %v", federated.Norm(g))
	}
	b, zero := collect(federated.Ahead(w.Start(), 3/federated.Dot(g, g), g)) // the margin is about 3 there
	if federated.Norm(zero) != 0 || !b.Stats().Flat {
		t.Errorf("beyond the margin: a gradient of length %v, %+v", federated.Norm(zero), b.Stats())
	}
	change, err := b.Train(t.Context(), protocol.Local{Epochs: 1, Minibatch: 1, LR: 1e-3})
	if err != nil || federated.Norm(change) != 0 || !b.Stats().Flat {
		t.Errorf("a change of length %v, %+v, %v", federated.Norm(change), b.Stats(), err)
	}
}

// TestPairGradientByDifferences: the gradient is the slope of the mean loss over the batch.
func TestPairGradientByDifferences(t *testing.T) {
	p, a := policy(t, backendtest.Go(t)), tinyPairs()
	a.Train.BatchSize, a.Train.MicroBatchSize, a.Held = 7, 7, tinyPairs().Pairs
	w := NewPairs(p, a, 0, 7)
	b := expect.Must(w.Collect(t.Context(), p.start, 0))(t)
	g := expect.Must(b.Gradient())(t)
	loss := func(along float64) float64 {
		v := expect.Must(w.Validate(t.Context(), federated.Ahead(p.start, along/federated.Norm(g), g)))(t)
		if v.Count != 7 || len(v.Means) != 5 {
			t.Errorf("%+v", v)
		}
		return v.Means["loss"]
	}
	const h = 0.02
	if slope := (loss(h) - loss(-h)) / (2 * h); math.Abs(slope+federated.Norm(g)) > 0.02*federated.Norm(g) {
		t.Errorf("the loss falls by %v a unit along a gradient of length %v", -slope, federated.Norm(g))
	}
	early, err := NewPairs(p, a, 0, 7).Validate(t.Context(), p.start) // ahead of any batch
	if late, err2 := w.Validate(t.Context(), p.start); err != nil || err2 != nil || !reflect.DeepEqual(early, late) {
		t.Errorf("%+v, %v, after a batch %+v, %v", early, err, late, err2)
	}
	if none, err := NewPairs(p, tinyPairs(), 0, 7).Validate(t.Context(), p.start); err != nil || none != nil {
		t.Errorf("%+v, %v: want no validation", none, err)
	}
}
