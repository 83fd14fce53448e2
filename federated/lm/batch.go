package lm

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/federated"
	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/grpo"
	"github.com/posttrain/posttrain/train"
)

// batch is what an agent has sampled under theta.
type batch struct {
	workload *Workload
	version  int
	theta    []float64
	drawn    *grpo.Drawn
	old      [][][]float32 // [groups][answers][tokens] log-probs under theta; nil: not measured yet

	exact   federated.Scores[float32] // nil: not computed, or too large
	inverse federated.Product         // of H + rho·I by the scores
	rho     float64
}

// turn works with the policy at theta.
func (b *batch) turn(ctx context.Context, work func(*grpo.Rollouts) error) error {
	return b.turnAt(ctx, b.theta, work)
}

func (b *batch) turnAt(ctx context.Context, params []float64, work func(*grpo.Rollouts) error) error {
	return b.workload.turn(ctx, params, b.version, work)
}

// Stats have tokens of the completions as steps, completions as episodes, and their mean reward.
func (b *batch) Stats() protocol.Stats {
	s := protocol.Stats{Steps: b.drawn.Tokens, Episodes: len(b.drawn.Rewards)}
	for _, r := range b.drawn.Rewards {
		s.Return += r / float64(len(b.drawn.Rewards))
	}
	s.Flat = !slices.ContainsFunc(b.drawn.Groups, teaches)
	return s
}

// teaches reports whether a completion that trains has an advantage.
func teaches(g grpo.Group) bool {
	for i, a := range g.Advantages {
		if a != 0 && (g.Masked == nil || !g.Masked[i]) {
			return true
		}
	}
	return false
}

// Gradient is less the gradient of GRPO's loss.
func (b *batch) Gradient() (g []float64, err error) {
	err = b.turn(context.Background(), func(l *grpo.Rollouts) error {
		loss, err := l.Gradient(b.drawn)
		g = federated.Scaled(-1, federated.Widen(loss))
		return err
	})
	return g, err
}

// measure returns the log-probs of the completions under some parameters.
func (b *batch) measure(params []float64) (logps [][][]float32, err error) {
	err = b.turnAt(context.Background(), params, func(l *grpo.Rollouts) error {
		logps, err = l.Trainer().Measure(b.drawn.Groups, nil)
		return err
	})
	return logps, err
}

// before are the log-probs under theta.
func (b *batch) before() (_ [][][]float32, err error) {
	if b.old == nil {
		b.old, err = b.measure(b.theta)
	}
	return b.old, err
}

// Product is by the scores of the completions where they fit the memory, else by differences.
func (b *batch) Product(v []float64) ([]float64, error) {
	if err := protocol.CheckLength(v, len(b.theta)); err != nil {
		return nil, err
	}
	if s, err := b.scoresOf(); err != nil {
		return nil, err
	} else if s != nil {
		return s.Product(v)
	}
	return b.byDifferences(v)
}

// byDifferences is the mean over the tokens of (∇ℓ·v)∇ℓ, ℓ a token's log-prob. The derivatives ∇ℓ·v come from
// differences of forward passes, the sum from one backward pass.
func (b *batch) byDifferences(v []float64) ([]float64, error) {
	length := federated.Norm(v)
	if length == 0 {
		return make([]float64, len(v)), nil
	}
	slopes, err := federated.Directional(func(scale float64) ([]float64, error) {
		logps, err := b.measure(federated.Ahead(b.theta, scale, v))
		return b.joined(logps), err
	}, firstStep*max(1, federated.Norm(b.theta))/length)
	if err != nil {
		return nil, err
	}
	return b.scores(federated.Scaled(1/float64(len(slopes)), slopes))
}

// firstStep is the length of the differences' first step over that of the parameters. It is as large as log-probs in
// float32 want it; [federated.Directional] halves it where they bend.
const firstStep = 1.0 / 64

// joined are the numbers of the tokens that train, one after the other.
func (b *batch) joined(numbers [][][]float32) (all []float64) {
	for i, group := range numbers {
		for a, row := range group {
			if g := b.drawn.Groups[i]; g.Masked == nil || !g.Masked[a] {
				all = append(all, federated.Widen(row)...)
			}
		}
	}
	return all
}

// scores is Σ weight·∇ℓ over the tokens that train.
func (b *batch) scores(weights []float64) (sum []float64, err error) {
	each := make([][][]float32, len(b.drawn.Groups))
	for i, g := range b.drawn.Groups {
		for a, answer := range g.Answers {
			row := make([]float32, len(answer))
			if g.Masked == nil || !g.Masked[a] {
				copy(row, federated.Narrow(weights[:len(answer)]))
				weights = weights[len(answer):]
			}
			each[i] = append(each[i], row)
		}
	}
	err = b.turn(context.Background(), func(l *grpo.Rollouts) error {
		g, err := l.Trainer().Scores(b.drawn.Groups, each)
		sum = federated.Widen(g)
		return err
	})
	return sum, err
}

// worst replaces a KL or a gain that is no finite number, which a message cannot hold.
const worst = 1e300

// Search estimates KL from the sampled tokens: the mean of r - 1 - log r, r the ratio of the new policy's probability
// to that of the old. The gain is what the loss falls by, ratios unclipped.
func (b *batch) Search(direction []float64, scales []float64) (kl, gain []float64, err error) {
	if err := protocol.CheckLength(direction, len(b.theta)); err != nil {
		return nil, nil, err
	}
	old, err := b.before()
	if err != nil {
		return nil, nil, err
	}
	o := b.workload.source.Options
	start := o.Unclipped(b.drawn.Groups, old, old)
	for _, s := range scales {
		k, g := worst, -worst
		if params := federated.Ahead(b.theta, s, direction); b.workload.check(params) == nil {
			logps, err := b.measure(params)
			if err != nil {
				return nil, nil, err
			}
			k, g = b.divergence(logps, old), start-o.Unclipped(b.drawn.Groups, logps, old)
		}
		if !(k <= worst && math.Abs(g) <= worst) {
			k, g = worst, -worst
		}
		kl, gain = append(kl, k), append(gain, g)
	}
	return kl, gain, nil
}

// divergence is the mean over the tokens that train.
func (b *batch) divergence(logps, old [][][]float32) (kl float64) {
	now, then := b.joined(logps), b.joined(old)
	for i, x := range now {
		d := x - then[i]
		kl += (math.Expm1(d) - d) / float64(len(now))
	}
	return kl
}

// Train makes epochs of updates on the batch by GRPO's clipped objective and a fresh AdamW. A minibatch has as many
// groups as its completions fill, at least one.
func (b *batch) Train(ctx context.Context, how protocol.Local) ([]float64, error) {
	old, err := b.before()
	if err != nil {
		return nil, err
	}
	groups := slices.Clone(b.drawn.Groups)
	for i := range groups {
		groups[i].Old = old[i]
	}
	w := b.workload
	l := local{w.Policy, w.rule, how, b.theta, rand.New(rand.NewPCG(w.trainer.Seed, uint64(b.version)))}
	size := max(1, how.Minibatch/w.source.Options.GroupSize)
	return l.train(len(groups), size, func(part []int, weights []float64) (g []float32, err error) {
		return g, b.turnAt(ctx, weights, func(l *grpo.Rollouts) error {
			trainer := l.Trainer()
			trainer.Options.ClipLow, trainer.Options.ClipHigh = min(how.Clip, 0.99), how.Clip
			g, err = trainer.Gradient(data.Pick(groups, part), train.NewMetrics())
			return err
		})
	})
}
