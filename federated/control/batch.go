package control

import (
	"context"
	"slices"

	"github.com/posttrain/posttrain/federated"
	"github.com/posttrain/posttrain/federated/protocol"
)

// batch is what a workload has sampled under theta.
type batch struct {
	workload *Workload
	version  int
	theta    []float64
	samples  samples
	stats    protocol.Stats
}

func (b *batch) Stats() protocol.Stats { return b.stats }

func (b *batch) Gradient() ([]float64, error) {
	divisor := b.samples.n
	if b.workload.options.Norm == Trajectories {
		divisor = b.samples.trajectories
	}
	return b.workload.policy.gradient(b.theta, &b.samples, b.workload.options.Entropy, float64(divisor)), nil
}

func (b *batch) Product(v []float64) ([]float64, error) {
	if err := protocol.CheckLength(v, len(b.theta)); err != nil {
		return nil, err
	}
	return b.workload.policy.product(b.theta, &b.samples, v), nil
}

func (b *batch) Search(direction []float64, scales []float64) (kl, gain []float64, err error) {
	if err := protocol.CheckLength(direction, len(b.theta)); err != nil {
		return nil, nil, err
	}
	return federated.Search(b.theta, direction, scales, func(params []float64) (kl, gain float64, err error) {
		kl, gain = b.workload.policy.compare(b.theta, params, &b.samples)
		return kl, gain, nil
	})
}

// Train runs epochs of PPO with a fresh Adam.
func (b *batch) Train(ctx context.Context, how protocol.Local) ([]float64, error) {
	l, g, r := newAdam(slices.Clone(b.theta)), make([]float64, len(b.theta)), b.workload.random("train", b.version)
	for range how.Epochs {
		for part := range slices.Chunk(r.Perm(b.samples.n), max(how.Minibatch, 1)) {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			clear(g)
			b.workload.policy.objective(l.Theta, &b.samples, part, how.Clip, how.Entropy, g)
			l.step(federated.Scaled(-1, g), how.LR)
		}
	}
	return federated.Difference(l.Theta, b.theta), nil
}
