package grpo

import (
	"context"
	"math"
)

// Drawn is a rollout batch that nothing was learnt from.
type Drawn struct {
	Groups  []Group // ready to train on, at ratio 1
	Rewards []float64
	Tokens  int // of the completions
}

// Draw samples and scores the groups of a step, counted from 0, with the present weights. They are the groups of the
// step in a run without dynamic sampling: tasks and draws follow from the seed and the step alone. Nothing is learnt.
// It comes after Start.
func (rs *Rollouts) Draw(ctx context.Context, step int) (*Drawn, error) {
	rs.t.State.Step, rs.t.State.Epoch, rs.t.State.Position = step, 0, step*rs.Options.Prompts
	r, err := rs.roll(ctx)
	if err != nil {
		return nil, err
	}
	d := &Drawn{Groups: r.training(rs.Options.MaskTruncated)}
	for _, a := range r.groups {
		d.Rewards = append(d.Rewards, a.rewards()...)
		for _, c := range a.answers {
			d.Tokens += len(c.Tokens)
		}
	}
	return d, rs.measure(r.groups, d.Groups)
}

// Trainer is the one that steps learn with.
func (rs *Rollouts) Trainer() *Trainer {
	return &Trainer{Learner: rs.t.Learner, Options: rs.Options, Rows: rs.Rows()}
}

// Gradient is the gradient of the loss on a rollout batch, [weights]: the step's update has the same. It holds the
// sampler to the learner, as a step does.
func (rs *Rollouts) Gradient(d *Drawn) ([]float32, error) {
	b, err := rs.minibatch(d.Groups, true)
	if err != nil {
		return nil, err
	}
	g, _, err := rs.t.Gradient(b)
	return g, err
}

// Unclipped is the loss on groups of which logps are the log-probs [groups][answers][tokens] and old the log-probs of
// the policy that they came from: ratios without a clip.
func (o Options) Unclipped(groups []Group, logps, old [][][]float32) float64 {
	o.ClipLow, o.ClipHigh = 1, math.Inf(1)
	with := append([]Group{}, groups...)
	for i := range with {
		with[i].Old = old[i]
	}
	b := newMinibatch(o, with).numbers
	b.Logps = b.Logps[:0]
	for _, rows := range logps {
		b.Logps = append(b.Logps, wide(rows)...)
	}
	return o.Host(b).Loss
}
