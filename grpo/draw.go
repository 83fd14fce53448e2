package grpo

import (
	"context"
	"math"

	"github.com/posttrain/posttrain/train"
)

// Drawn is a rollout batch that nothing was learnt from.
type Drawn struct {
	Groups  []Group // ready to train on, at ratio 1
	Rewards []float64
	Tokens  int // of the completions
}

// Draw samples and scores the groups of a step, counted from 0, with the present weights. They are those of the step in
// a run without dynamic sampling: tasks and draws follow from the seed and the step alone. Nothing is learnt.
func (l *Loop) Draw(ctx context.Context, step int) (*Drawn, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	l.State.Step, l.State.Epoch, l.State.Position = step, 0, step*l.Options.Prompts
	r, err := l.roll(ctx)
	if err != nil {
		return nil, err
	}
	d := &Drawn{Groups: r.groups(l.Options.MaskTruncated)}
	for _, a := range r.places {
		d.Rewards = append(d.Rewards, a.rewards()...)
		for _, c := range a.completions {
			d.Tokens += len(c.Tokens)
		}
	}
	return d, l.measure(l.Trainer(), d.Groups)
}

// Trainer is the one that the loop learns with.
func (l *Loop) Trainer() *Trainer {
	return &Trainer{Learner: l.Learner, Options: l.Options, Rows: l.Rows()}
}

// Gradient is the gradient of the loss on what the loop has drawn last, [weights]: that of the step's update. It holds
// the sampler to the learner, as a step does.
func (l *Loop) Gradient(d *Drawn) ([]float32, error) {
	m := train.NewMetrics()
	g, err := l.Trainer().Gradient(d.Groups, m)
	if err != nil {
		return nil, err
	}
	return g, l.checkFirst(m.Means(""))
}

// Unclipped is the loss on groups of which logps are the log-probs [groups][answers][tokens] and old those of the
// policy that they came from: ratios without a clip.
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
