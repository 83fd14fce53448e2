package grpo

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/gomlx/compute"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/train"
)

// ValidationOptions say how the held-out tasks are measured while training.
type ValidationOptions struct {
	Every       int     `yaml:"every" want:">=0" zero:"only at the end" default:"240" paper:"240" help:"steps between validations; 0: at both ends"`
	Temperature float64 `yaml:"temperature" want:">=0" zero:"greedy" default:"0.7" paper:"0.7" help:"of the completions, one a task"`
	Samples     int     `yaml:"samples" want:">=0" default:"4" help:"completions of a validation that samples.jsonl has"`
}

// Rollouts are the source of a trainer that learns from its model's own answers. A step is one rollout batch: some
// prompts, a group of completions of each, their rewards, and the optimiser's updates on them, all at one learning
// rate.
//
// The tasks of a step follow from the seed and how many tasks were used before, a request's draws from seed, step and
// place in the step alone.
type Rollouts struct {
	Options   Options
	Tasks     []ask.Question   // with Tokens; how they are answered is for Sampling to say
	Judge     ask.Judge        // of the reward; its error ends the run, which can be continued
	Weights   []float64        // of a judge of several rewards, each reward's
	NoFormat  bool             // the judge knows no format: how many answers keep it is not logged
	Sampler   rollout.Sampler  // of the learner's weights
	Sampling  rollout.Sampling // of rollouts; the objective has temperature 1
	Longest   int              // most tokens of a completion; 0: as many as the sampling has
	Reference []compute.Buffer // KL is measured to these weights; nil without KL

	Held       []ask.Question // validation; empty: none
	Validation ValidationOptions
	Row        func(step int, a ask.Answer) any // a line of samples.jsonl; nil: none
	OnPart     func(run.Part)                   // how far sampling, scoring and measuring are; may be nil

	t      *train.Trainer
	warned map[string]int // the last step of every kind of warning
}

// Numbers that checkpoints keep.
const (
	fruitless    = "fruitless"            // steps in a row whose completions all broke the format
	firstEntropy = "entropy at the start" // of the first step
)

// Start implements [train.Source].
func (rs *Rollouts) Start(t *train.Trainer) error {
	rs.t = t
	return rs.check()
}

// Size implements [train.Source].
func (rs *Rollouts) Size() int { return len(rs.Tasks) }

// Total implements [train.Source]. Dynamic sampling uses up tasks faster, it does not change it.
func (rs *Rollouts) Total() int {
	if n := rs.t.Options.MaxSteps; n > 0 {
		return n
	}
	return (rs.t.Options.Epochs*len(rs.Tasks) + rs.Options.Prompts - 1) / rs.Options.Prompts
}

// Evaluation implements [train.Source].
func (rs *Rollouts) Evaluation() (every int, metric string) {
	if len(rs.Held) == 0 {
		return 0, ""
	}
	return rs.Validation.Every, rewardMetric
}

// Hash identifies prompts and targets of all tasks.
func (rs *Rollouts) Hash() string {
	h := sha256.New()
	for _, tasks := range [][]ask.Question{rs.Tasks, rs.Held} {
		fmt.Fprintln(h, len(tasks))
		for _, t := range tasks {
			fmt.Fprintf(h, "%d %q\n", len(t.Tokens), t.Target)
			binary.Write(h, binary.LittleEndian, t.Tokens) // a hash never fails
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Next implements [train.Source]: it samples, scores, and measures what the objective wants beside that.
func (rs *Rollouts) Next(ctx context.Context, m *train.Metrics) (*train.Step, error) {
	r, err := rs.roll(ctx)
	if err != nil {
		return nil, err
	}
	r.observe(m, rs.NoFormat)
	if err := rs.checkAnswers(r); err != nil {
		return nil, err
	}
	s := &train.Step{Examples: r.used, Tokens: r.tokens(), Learning: time.Now()}
	groups := r.training(rs.Options.MaskTruncated)
	if err := rs.measure(r.groups, groups); err != nil {
		return nil, err
	}
	s.Done = func(m *train.Metrics) { rs.diagnose(m.Means(""), largest(groups)) }
	for part := range slices.Chunk(groups, rs.Options.Prompts/rs.Options.Updates) {
		b, err := rs.minibatch(part, s.Minibatches == nil)
		if err != nil {
			return nil, err
		}
		s.Minibatches = append(s.Minibatches, b)
	}
	return s, nil
}

// minibatch is an update on groups. The first of a step is held to the policy that its completions are from.
func (rs *Rollouts) minibatch(groups []Group, first bool) (*train.Minibatch, error) {
	b, err := rs.Trainer().Minibatch(groups)
	if err != nil {
		return nil, err
	}
	b.Blame = func(norm float64) error { return rs.gradientError(norm, first) }
	if first {
		b.Check = func(m *train.Metrics) error { return rs.checkFirst(m.Means("")) }
	}
	return b, nil
}

// Rows is how groups are laid out: in few shapes on an engine that wants this; else each batch chooses its own. It
// depends on the tasks and options alone, so that a resumed run has the same shapes.
func (rs *Rollouts) Rows() batch.GroupLayout {
	s := batch.GroupLayout{Tokens: tokensFor(rs.t.Learner), Blocks: rs.t.Learner.Blocks()}
	few := rs.t.Learner.Wants().Shapes
	if few == 0 || len(rs.Tasks) == 0 {
		return s
	}
	prompts := make([]int, len(rs.Tasks))
	for i, t := range rs.Tasks {
		prompts[i] = len(t.Tokens)
	}
	answers := rs.Options.Prompts * rs.Options.GroupSize
	return s.Few(few, prompts, rs.longest(), answers, rs.t.Learner.Config().HiddenSize)
}

// longest is how many tokens a completion has at most.
func (rs *Rollouts) longest() int { return cmp.Or(rs.Longest, rs.Sampling.MaxNew) }

// gradientError is the error of a gradient that is not finite. Where it is the step's first, the weights that the step
// began with gave it.
func (rs *Rollouts) gradientError(norm float64, first bool) error {
	err := fmt.Errorf("step %d: the gradient's norm is %v: lower train.learning_rate", rs.t.State.Step+1, norm)
	if first {
		return train.BadWeights{Err: err}
	}
	return err
}

// begin says what is done now.
func (rs *Rollouts) begin(what string) {
	if rs.OnPart != nil {
		rs.OnPart(run.Part{What: what, Start: time.Now()})
	}
}

// measure gives the groups the log-probs of the old policy and of the reference, where the objective needs them, and
// takes KL from the rewards, where it belongs there. all are the groups that they are of.
func (rs *Rollouts) measure(all []*group, groups []Group) error {
	t := rs.Trainer()
	rs.begin("measuring log-probs")
	if rs.Options.NeedsOld() {
		old, err := t.Measure(groups, nil)
		if err != nil {
			return err
		}
		for i := range groups {
			groups[i].Old = old[i]
		}
	}
	if rs.Options.NeedsReference() {
		reference, err := t.Measure(groups, rs.Reference)
		if err != nil {
			return err
		}
		for i := range groups {
			groups[i].Reference = reference[i]
		}
	}
	if rs.Options.InReward() {
		rs.penalise(all, groups)
	}
	return nil
}
