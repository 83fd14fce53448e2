package grpo

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/gomlx/compute"

	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/reward"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/train"
)

// Task is a prompt with what its answers are scored by.
type Task struct {
	Tokens    []int32         // the prompt
	Prompt    string          // the prompt as text, for samples.jsonl
	Source    string          // its place in a file, for messages
	Target    string          // what a score function compares with, such as the right answer; CIScore does not read it
	Keywords  reward.Keywords // what CIScore looks for
	Prefilled bool            // the prompt ends inside the think block, which CIScore must know
}

// ValidationOptions say how the held-out tasks are measured while training.
type ValidationOptions struct {
	Every       int     `yaml:"every" want:">=0" zero:"only at the end" default:"240" paper:"240" help:"steps between validations; 0: at both ends"`
	Temperature float64 `yaml:"temperature" want:">=0" zero:"greedy" default:"0.7" paper:"0.7" help:"of the completions, one a task"`
	Samples     int     `yaml:"samples" want:">=0" default:"4" help:"completions of a validation that samples.jsonl has"`
}

// Loop teaches a model by steps. A step is one rollout batch: some prompts, a group of completions of each, their
// rewards, and the optimiser's updates on them. Train.RateAt gives the learning rate of a step, counted from 0, to
// all its updates.
//
// With Ahead, the completions of a step are drawn from the weights of that many steps before, while the learner learns.
//
// The tasks of a step follow from the seed and how many tasks were used before, a request's draws from seed, step and
// place in the step alone.
type Loop struct {
	train.Course
	Options    Options
	Train      train.Options                                 // optimiser, schedule, length, log lines, checkpoints
	Sampling   rollout.Sampling                              // of rollouts; the objective has temperature 1
	Score      func(t *Task, completion string) reward.Score // such as [CIScore]
	Validation ValidationOptions
	Sampler    rollout.Sampler  // of the learner's weights
	Ahead      int              // steps whose completions are drawn ahead, see ahead.go; the Sampler is a rollout.Starter
	Reference  []compute.Buffer // KL is measured to these weights, those that training starts from; nil without KL
	Tasks      []Task
	Mix        train.Mix // how the tasks are drawn
	Held       []Task    // validation; empty: none

	// Answer answers the held-out tasks with the present weights, one draw from each seed, and scores the answers. nil
	// asks the Sampler and Score.
	Answer func(ctx context.Context, seeds []uint64) ([]eval.Row, error)

	ahead  []*begun       // rollout batches of the present step and those after it, as far as they were begun
	starts map[int]int    // steps by the learner's version at their start, as far back as Ahead
	warned map[string]int // the last step of every kind of warning
}

// Numbers of the loop that checkpoints keep.
const (
	fruitless    = "fruitless"            // steps in a row whose completions all broke the format
	firstEntropy = "entropy at the start" // of the first step
)

// Run trains to the last step, or until ctx ends. Then it gives up the rollouts under way, or finishes the updates
// under way, saves a checkpoint, and the error is train.ErrInterrupted.
func (l *Loop) Run(ctx context.Context) error {
	if err := l.check(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer l.abandon()
	defer cancel()
	return l.Follow(ctx, l.plan())
}

// Resume continues from the newest good checkpoint of the folder and returns its warnings, see [train.Course.Restore].
func (l *Loop) Resume() ([]run.Warning, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	return l.Restore(l.plan())
}

func (l *Loop) plan() train.Plan {
	p := train.Plan{Options: l.Train, Total: l.Total(), Examples: len(l.Tasks), Data: l.dataHash(), Step: l.step}
	p.Options.EvalEvery, p.Options.EvalMetric = l.Validation.Every, rewardMetric
	if len(l.Held) > 0 {
		p.Evaluate = l.validate
	}
	return p
}

// Total is the number of steps of the whole run. Dynamic sampling uses up tasks faster, it does not change it.
func (l *Loop) Total() int {
	if l.Train.MaxSteps > 0 {
		return l.Train.MaxSteps
	}
	return (l.Train.Epochs*len(l.Tasks) + l.Options.Prompts - 1) / l.Options.Prompts
}

// dataHash identifies prompts, keywords and targets of all tasks.
func (l *Loop) dataHash() string {
	h := sha256.New()
	if l.Mix.On() {
		fmt.Fprintln(h, l.Mix)
	}
	for _, tasks := range [][]Task{l.Tasks, l.Held} {
		fmt.Fprintln(h, len(tasks))
		for _, t := range tasks {
			fmt.Fprintf(h, "%d %q %q %v\n", len(t.Tokens), t.Keywords.Required, t.Keywords.Restricted, t.Prefilled)
			if t.Target != "" {
				fmt.Fprintf(h, "%q\n", t.Target)
			}
			binary.Write(h, binary.LittleEndian, t.Tokens) // a hash never fails
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// step samples, scores and learns.
func (l *Loop) step(ctx context.Context) error {
	started, m := time.Now(), train.NewMetrics()
	r, err := l.roll(ctx)
	if err != nil {
		return err
	}
	r.observe(m)
	if err := l.checkAnswers(r); err != nil {
		return err
	}
	learning := time.Now()
	if err := l.learn(r.groups(l.Options.MaskTruncated), m); err != nil {
		return err
	}
	m.Add("time/train", time.Since(learning).Seconds(), 1)
	if err := l.Record(m, r.used, r.tokens(), time.Since(started).Seconds()); err != nil {
		return err
	}
	l.diagnose(m.Means(""))
	return nil
}

// Rows is how groups are laid out: in few shapes on an engine that wants this; else each batch chooses its own. It
// depends on the tasks and options alone, so that a resumed run has the same shapes.
func (l *Loop) Rows() batch.Spreading {
	s := batch.Spreading{Tokens: tokensFor(l.Learner), Blocks: l.Learner.Blocks()}
	few := l.Learner.Wants().Shapes
	if few == 0 || len(l.Tasks) == 0 {
		return s
	}
	prompts := make([]int, len(l.Tasks))
	for i, t := range l.Tasks {
		prompts[i] = len(t.Tokens)
	}
	answers := l.Options.Prompts * l.Options.GroupSize
	return s.Few(few, prompts, l.Sampling.MaxNew, answers, l.Learner.Config().HiddenSize)
}

// learn makes the updates of a rollout batch.
func (l *Loop) learn(groups []Group, m *train.Metrics) error {
	t := l.Trainer()
	if err := l.measure(t, groups); err != nil {
		return err
	}
	rate := l.Train.RateAt(l.State.Step, l.Total())
	for part := range slices.Chunk(groups, l.Options.Prompts/l.Options.Updates) {
		u := train.NewMetrics()
		norm, err := t.Update(part, l.Train.Rule(), rate, u)
		if err != nil {
			return err
		}
		first := m.Weights["grad_norm"] == 0
		if !finite(norm) {
			return l.gradientError(norm, first)
		}
		if first {
			if err := l.checkFirst(u.Means("")); err != nil {
				return err
			}
		}
		m.Join(u)
		m.Add("grad_norm", norm, 1)
	}
	m.Add("learning_rate", rate, 1)
	return nil
}

// gradientError is the error of a gradient that is not finite. Where it is the step's first, the weights that the step
// began with gave it.
func (l *Loop) gradientError(norm float64, first bool) error {
	err := fmt.Errorf("step %d: the gradient's norm is %v: lower train.learning_rate", l.State.Step+1, norm)
	if first {
		return train.BadWeights{Err: err}
	}
	return err
}

// measure gives the groups the log-probs of the old policy and of the reference, where the objective needs them.
func (l *Loop) measure(t *Trainer, groups []Group) error {
	if l.Options.NeedsOld() {
		old, err := t.Measure(groups, nil)
		if err != nil {
			return err
		}
		for i := range groups {
			groups[i].Old = old[i]
		}
	}
	if l.Options.NeedsReference() {
		reference, err := t.Measure(groups, l.Reference)
		if err != nil {
			return err
		}
		for i := range groups {
			groups[i].Reference = reference[i]
		}
	}
	return nil
}
