package lm

import (
	"context"
	"fmt"
	"math"
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

	scores  federated.Scores[float32] // nil: not computed
	inverse federated.Product         // of H + rho·I
	rho     float64
}

// withParams calls do with the policy at params.
func (b *batch) withParams(ctx context.Context, params []float64, do func(*grpo.Rollouts) error) error {
	return b.workload.withParams(ctx, params, b.version, do)
}

// isTrained reports whether a completion is one to learn from.
func isTrained(g grpo.Group, answer int) bool { return g.Masked == nil || !g.Masked[answer] }

// Stats have tokens of the completions as steps, completions as episodes, and their mean reward. A batch is flat where
// no completion that trains has an advantage.
func (b *batch) Stats() protocol.Stats {
	s := protocol.Stats{Steps: b.drawn.Tokens, Episodes: len(b.drawn.Rewards), Flat: true}
	for _, r := range b.drawn.Rewards {
		s.Return += r / float64(len(b.drawn.Rewards))
	}
	for _, g := range b.drawn.Groups {
		for i, a := range g.Advantages {
			s.Flat = s.Flat && (a == 0 || !isTrained(g, i))
		}
	}
	return s
}

// Gradient is less the gradient of GRPO's loss.
func (b *batch) Gradient() (g []float64, err error) {
	err = b.withParams(context.Background(), b.theta, func(l *grpo.Rollouts) error {
		loss, err := l.Gradient(b.drawn)
		g = federated.Scaled(-1, federated.Widen(loss))
		return err
	})
	return g, err
}

// measure returns the log-probs of the completions under some parameters.
func (b *batch) measure(params []float64) (logps [][][]float32, err error) {
	err = b.withParams(context.Background(), params, func(l *grpo.Rollouts) error {
		logps, err = l.Trainer().Measure(b.drawn.Groups, nil)
		return err
	})
	return logps, err
}

// oldLogProbs are the log-probs under theta.
func (b *batch) oldLogProbs() (_ [][][]float32, err error) {
	if b.old == nil {
		b.old, err = b.measure(b.theta)
	}
	return b.old, err
}

// computeScores are the scores s_i = ∇Σ_t ℓ of the batch's completions, ℓ a token's log-prob, each times sqrt(n/T) for
// n completions of T tokens: with them H = Σs_is_iᵀ/T, which has the expectation of the mean over tokens, as tokens'
// scores are uncorrelated. The first call makes a backward pass for each completion.
func (b *batch) computeScores() (federated.Scores[float32], error) {
	var each []grpo.Group // of one completion
	tokens := 0
	for _, g := range b.drawn.Groups {
		for a, answer := range g.Answers {
			if isTrained(g, a) && len(answer) > 0 {
				var one grpo.Group
				one.Prompt, one.Answers = g.Prompt, [][]int32{answer}
				each, tokens = append(each, one), tokens+len(answer)
			}
		}
	}
	switch size := float64(len(each)) * float64(len(b.theta)) * 4; {
	case b.scores != nil:
		return b.scores, nil
	case size > b.workload.memory:
		return nil, fmt.Errorf("the gradients of %d completions take %.3g GB: want as much memory_gb, or an adapter",
			len(each), size/1e9)
	case len(each) == 0:
		return federated.Scores[float32]{make([]float32, len(b.theta))}, nil // H is 0
	}
	var all federated.Scores[float32]
	scale := float32(math.Sqrt(float64(len(each)) / float64(tokens)))
	err := b.withParams(context.Background(), b.theta, func(l *grpo.Rollouts) error {
		for _, one := range each {
			weights := slices.Repeat([]float32{scale}, len(one.Answers[0]))
			row, err := l.Trainer().Scores([]grpo.Group{one}, [][][]float32{{weights}})
			if err != nil {
				return err
			}
			all = append(all, row)
		}
		b.scores = all
		return nil
	})
	return all, err
}

// Product is by the scores of the completions.
func (b *batch) Product(v []float64) ([]float64, error) {
	if err := protocol.CheckLength(v, len(b.theta)); err != nil {
		return nil, err
	}
	s, err := b.computeScores()
	if err != nil {
		return nil, err
	}
	return s.Product(v)
}

// Solve is (H + ρI)⁻¹right by one system of n equations.
func (b *batch) Solve(right []float64, rho float64) ([]float64, error) {
	if err := protocol.CheckLength(right, len(b.theta)); err != nil {
		return nil, err
	}
	if b.inverse == nil || b.rho != rho {
		s, err := b.computeScores()
		if err != nil {
			return nil, err
		}
		if b.inverse, err = s.Inverse(rho); err != nil {
			return nil, err
		}
		b.rho = rho
	}
	return b.inverse(right)
}

// Search estimates KL from the sampled tokens: the mean of r - 1 - log r, r the new policy's probability over the old
// one's. The gain is what the loss falls by, ratios unclipped.
func (b *batch) Search(direction []float64, scales []float64) (kl, gain []float64, err error) {
	if err := protocol.CheckLength(direction, len(b.theta)); err != nil {
		return nil, nil, err
	}
	old, err := b.oldLogProbs()
	if err != nil {
		return nil, nil, err
	}
	o := b.workload.source.Options
	start := o.Unclipped(b.drawn.Groups, old, old)
	return federated.Search(b.theta, direction, scales, func(params []float64) (kl, gain float64, err error) {
		if b.workload.check(params) != nil {
			return math.Inf(1), 0, nil
		}
		logps, err := b.measure(params)
		if err != nil {
			return 0, 0, err
		}
		return b.divergence(logps, old), start - o.Unclipped(b.drawn.Groups, logps, old), nil
	})
}

// divergence is the mean over the tokens that train.
func (b *batch) divergence(logps, old [][][]float32) (kl float64) {
	var differences []float64
	for i, g := range b.drawn.Groups {
		for a, row := range logps[i] {
			if isTrained(g, a) {
				change := federated.Difference(federated.Widen(row), federated.Widen(old[i][a]))
				differences = append(differences, change...)
			}
		}
	}
	for _, d := range differences {
		kl += (math.Expm1(d) - d) / float64(len(differences))
	}
	return kl
}

// Train makes epochs of updates on the batch by GRPO's clipped objective and a fresh AdamW. A minibatch has as many
// groups as its completions fill, at least one.
func (b *batch) Train(ctx context.Context, how protocol.Local) ([]float64, error) {
	old, err := b.oldLogProbs()
	if err != nil {
		return nil, err
	}
	groups := slices.Clone(b.drawn.Groups)
	for i := range groups {
		groups[i].Old = old[i]
	}
	size := max(1, how.Minibatch/b.workload.source.Options.GroupSize)
	gradient := func(part []int, weights []float64) (g []float32, err error) {
		return g, b.withParams(ctx, weights, func(l *grpo.Rollouts) error {
			trainer := l.Trainer()
			trainer.Options.ClipLow, trainer.Options.ClipHigh = min(how.Clip, 0.99), how.Clip
			g, err = trainer.Gradient(data.Pick(groups, part), train.NewMetrics())
			return err
		})
	}
	return b.workload.train(b.theta, b.version, how, len(groups), size, gradient)
}
