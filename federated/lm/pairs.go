package lm

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/federated"
	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/internal/adamw"
	"github.com/posttrain/posttrain/losses"
	"github.com/posttrain/posttrain/train"
)

// PairAgent says what an agent learns from, and how.
type PairAgent struct {
	Loss      losses.Options // of pairs
	Pairs     []train.Example
	Held      []train.Example // that it does not train on
	Train     train.Options   // batches, and how rows are laid out
	Share     bool            // both answers share their prompt in one row
	Optimizer adamw.Options   // of local training
}

// PairWorkload implements [protocol.Workload] for preference pairs. A batch of version k has the pairs of step k of a
// training run; the reference is the model at the start. It has no natural gradients.
type PairWorkload struct {
	agent
	pairs    train.Dataset
	measured map[bool]bool // the reference's log-probs of held-out pairs (true) and of the others are known
}

// NewPairs makes the workload of an agent. Agent 0 has the order of a training run of this seed.
func NewPairs(p *Policy, a PairAgent, number int, seed uint64) *PairWorkload {
	w := &PairWorkload{agent: newAgent(p, a.Train, a.Optimizer, number, seed),
		pairs: train.Dataset{Method: &train.Preference{Options: a.Loss}, Examples: slices.Clone(a.Pairs),
			Held: slices.Clone(a.Held), Share: a.Share}, measured: map[bool]bool{}}
	w.trainer.Source = &w.pairs
	return w
}

// Collect chooses the pairs of step version.
func (w *PairWorkload) Collect(ctx context.Context, params []float64, version int) (protocol.Batch, error) {
	if err := w.check(params); err != nil {
		return nil, err
	}
	if err := cmp.Or(w.trainer.Start(), w.measureReference(ctx, false)); err != nil {
		return nil, err
	}
	b := &pairBatch{workload: w, version: version, theta: federated.Widen(federated.Narrow(params))}
	b.examples = w.pairs.Seek(version)
	return b, nil
}

// measureReference measures pairs' log-probs at the start, once, as a training run does ahead of its first step.
func (w *PairWorkload) measureReference(ctx context.Context, held bool) error {
	pairs := w.pairs.Examples
	if held {
		pairs = w.pairs.Held
	}
	if w.measured[held] || w.pairs.Method.(*train.Preference).Options.ReferenceFree() {
		return nil
	}
	return w.withParams(ctx, w.start, 0, func(*Opened) error {
		sums, err := train.PairSums(w.trainer.Learner, train.Groups(pairs), w.pairs.Layout(),
			func(int) error { return ctx.Err() })
		if err != nil { // some are missing
			return err
		}
		for i := range sums {
			pairs[i].Reference = sums[i]
		}
		w.measured[held] = true
		return nil
	})
}

// pairMeasures are the means that an agent sends of the pairs that it holds out.
var pairMeasures = map[string]string{
	"loss": losses.MetricLoss, "accuracy": losses.MetricAccuracies, "margin": losses.MetricMargins,
	"logp_chosen": losses.MetricLogpsChosen, "logp_rejected": losses.MetricLogpsRejected,
}

// Validate implements [protocol.Validator].
func (w *PairWorkload) Validate(ctx context.Context, params []float64) (*protocol.Validation, error) {
	if len(w.pairs.Held) == 0 {
		return nil, nil
	}
	if err := w.measureReference(ctx, true); err != nil {
		return nil, err
	}
	v := &protocol.Validation{Count: len(w.pairs.Held), Means: map[string]float64{}}
	return v, w.withParams(ctx, params, 0, func(*Opened) error {
		values, err := w.pairs.Measure(ctx, w.pairs.Held)
		for name, metric := range pairMeasures {
			v.Means[name] = values["eval_"+metric]
		}
		return err
	})
}

// pairBatch are some pairs with the parameters that an agent was sent.
type pairBatch struct {
	workload *PairWorkload
	version  int
	theta    []float64
	examples []int
	accuracy float64 // of the pairs in the passes over them
	flat     bool    // the loss had no slope there: hinge beyond its margin
}

// Stats have pairs as steps and episodes, and as return the share of them whose chosen answer has the higher reward,
// where a gradient was taken.
func (b *pairBatch) Stats() protocol.Stats {
	return protocol.Stats{Steps: len(b.examples), Episodes: len(b.examples), Return: b.accuracy, Flat: b.flat}
}

// Gradient is the negative gradient of the loss.
func (b *pairBatch) Gradient() ([]float64, error) {
	g, m, err := b.gradient(context.Background(), b.theta, b.examples)
	if err != nil {
		return nil, err
	}
	ascent := federated.Scaled(-1, federated.Widen(g))
	b.accuracy, b.flat = m.Means("")[losses.MetricAccuracies], federated.Norm(ascent) == 0
	return ascent, nil
}

// gradient is the gradient of the loss on some pairs.
func (b *pairBatch) gradient(ctx context.Context, params []float64, examples []int) (g []float32, m *train.Metrics,
	err error) {
	err = b.workload.withParams(ctx, params, 0, func(*Opened) error {
		w := b.workload
		w.pairs.Seek(b.version)
		update, err := w.pairs.Minibatch(examples)
		if err == nil {
			g, m, err = w.trainer.Gradient(update)
		}
		return err
	})
	return g, m, err
}

// Train makes epochs of updates on the pairs of the batch by the loss and a fresh AdamW.
func (b *pairBatch) Train(ctx context.Context, how protocol.Local) ([]float64, error) {
	all := train.NewMetrics()
	gradient := func(part []int, weights []float64) ([]float32, error) {
		g, m, err := b.gradient(ctx, weights, data.Pick(b.examples, part))
		if err == nil {
			all.Join(m)
		}
		return g, err
	}
	change, err := b.workload.train(b.theta, b.version, how, len(b.examples), how.Minibatch, gradient)
	if mean := all.Means("")[losses.MetricAccuracies]; !math.IsNaN(mean) {
		b.accuracy = mean
	}
	b.flat = err == nil && federated.Norm(change) == 0
	return change, err
}
