package grpo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gomlx/compute"

	"github.com/posttrain/posttrain/reward"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/run"
	"github.com/posttrain/posttrain/train"
)

// Task is a prompt with what its answers are scored by.
type Task struct {
	Tokens    []int32 // the prompt
	Keywords  reward.Keywords
	Prefilled bool   // the prompt ends inside the think block
	Source    string // where it stands, for messages
	Domain    string
	Principle string // the transmission principle
	Prompt    string // the prompt as text, for samples.jsonl
}

// ValidationOptions say how the held-out tasks are measured while training.
type ValidationOptions struct {
	Every       int     `yaml:"every" want:">=0" zero:"only at the end"` // steps between validations; 0: only before the first step and after the last
	Temperature float64 `yaml:"temperature" want:">=0" zero:"greedy"`    // of the completions, one a task
	Samples     int     `yaml:"samples" want:">=0"`                      // completions of each validation that are shown in samples.jsonl
}

// DefaultValidation are the settings of CI-RL.
func DefaultValidation() ValidationOptions {
	return ValidationOptions{Every: 20, Temperature: 0.7, Samples: 4}
}

// Loop teaches a model by steps. A step is one rollout batch: so many prompts, a group of completions of each, their
// rewards, and the optimiser's updates on them. Train.RateAt gives the learning rate of a step, counted from 0, to all its
// updates.
//
// All it needs to go on bit for bit after an interruption is in its checkpoints. The tasks of a step follow from the
// seed and how many tasks were used before, a request's draws from seed, step and place in the step alone.
type Loop struct {
	Options    Options
	Train      train.Options    // optimiser, schedule, steps or epochs over the tasks, log lines, checkpoints
	Sampling   rollout.Sampling // of rollouts; the objective is that of the model at temperature 1, nothing cut off
	Reward     reward.Options
	Validation ValidationOptions
	Learner    *train.Learner
	Sampler    rollout.Sampler  // of the learner's weights
	Reference  []compute.Buffer // weights that KL is measured to: those that training starts from; nil where there is no KL
	Tasks      []Task
	Held       []Task // validation; empty: none
	Folder     *run.Folder
	Export     train.Exporter
	Seed       uint64
	ConfigHash string
	OnStep     func(step, total int, values map[string]float64) // after every step; nil: nobody watches
	OnNotice   func(line string)                                // validations and warnings, in words; nil: nobody reads

	state     run.State
	window    *train.Metrics // since the last metrics line
	tokens    float64        // of prompts and completions since the run began
	validated int            // the last step that was validated; -1: none
	fruitless int            // steps in a row whose completions all broke the format
	entropy   float64        // of the first step
	clean     bool           // a checkpoint holds the present state
	told      map[string]int // the last step of every kind of warning
	data      string         // see dataHash
}

// Run trains to the last step, or until ctx ends. Then it gives up the rollouts under way, or finishes the updates under way,
// saves a checkpoint, and the error is train.ErrInterrupted.
func (l *Loop) Run(ctx context.Context) error {
	if err := l.check(); err != nil {
		return err
	}
	l.begin()
	for {
		err := l.between(ctx)
		if err == nil && l.state.Step >= l.Total() {
			return nil
		}
		if err == nil {
			err = l.step(ctx)
		}
		if errors.Is(err, errAbandoned) {
			return l.interrupt()
		}
		if err != nil {
			return l.explain(err)
		}
	}
}

// errAbandoned says that the context ended between two steps, or before anything of a step was learnt.
var errAbandoned = errors.New("abandoned")

// begin fills what a fresh loop lacks; a resumed one has it.
func (l *Loop) begin() {
	l.told = map[string]int{}
	if l.window == nil {
		l.window, l.state.Seed, l.validated = train.NewMetrics(), l.Seed, -1
	}
}

// Step is the number of steps done.
func (l *Loop) Step() int { return l.state.Step }

// Total is the number of steps of the whole run. Dynamic sampling uses up tasks faster, it does not change it.
func (l *Loop) Total() int {
	if l.Train.MaxSteps > 0 {
		return l.Train.MaxSteps
	}
	return (l.Train.Epochs*len(l.Tasks) + l.Options.Prompts - 1) / l.Options.Prompts
}

// between does what is due between two steps: a validation, a checkpoint.
func (l *Loop) between(ctx context.Context) error {
	step, last, best := l.state.Step, l.state.Step >= l.Total(), false
	if l.toValidate(last) {
		var err error
		if best, err = l.validate(ctx); err != nil {
			return err
		}
	}
	if best || last || step > 0 && due(step, l.Train.CheckpointEvery) {
		if err := l.save(best); err != nil {
			return err
		}
	}
	if ctx.Err() != nil && !last {
		return errAbandoned
	}
	return nil
}

func due(step, every int) bool { return every > 0 && step%every == 0 }

// step samples, scores and learns.
func (l *Loop) step(ctx context.Context) error {
	started, m := time.Now(), train.NewMetrics()
	r, err := l.roll(ctx)
	if err != nil {
		return err
	}
	r.observe(m)
	if err := l.fruitful(r); err != nil {
		return err
	}
	learning := time.Now()
	if err := l.learn(r.groups(l.Options.MaskTruncated), m); err != nil {
		return err
	}
	m.Add("time/train", time.Since(learning).Seconds(), 1)
	l.advance(r.used)
	return l.record(m, r, time.Since(started).Seconds())
}

// learn makes the updates of a rollout batch.
func (l *Loop) learn(groups []Group, m *train.Metrics) error {
	t := &Trainer{Learner: l.Learner, Options: l.Options}
	if err := l.measure(t, groups); err != nil {
		return err
	}
	rate := l.Train.RateAt(l.state.Step, l.Total())
	for part := range slices.Chunk(groups, l.Options.Prompts/l.Options.Updates) {
		u := train.NewMetrics()
		norm, err := t.Update(part, l.Train.Rule(), rate, u)
		if err != nil {
			return err
		}
		first := m.Weights["grad_norm"] == 0
		if !finite(norm) {
			return l.broken(norm, first)
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

// broken is the error of a gradient that is not finite. Where it is the step's first, the weights that the step began with gave
// it.
func (l *Loop) broken(norm float64, first bool) error {
	err := fmt.Errorf("step %d: the gradient's norm is %v: lower train.learning_rate", l.state.Step+1, norm)
	if first {
		return notFinite{err}
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

func (l *Loop) advance(tasks int) {
	l.clean = false
	l.state.Step++
	at := l.state.Position + tasks
	l.state.Epoch, l.state.Position = l.state.Epoch+at/len(l.Tasks), at%len(l.Tasks)
}

func (l *Loop) epoch() float64 {
	return float64(l.state.Epoch) + float64(l.state.Position)/float64(len(l.Tasks))
}

// record adds a step's figures to the window of the next metrics line, writes the line where it is due, and says what is
// odd.
func (l *Loop) record(m *train.Metrics, r *rolled, seconds float64) error {
	l.tokens += r.tokens()
	m.Add("step_time", seconds, 1)
	m.Add("tokens_per_second", r.tokens()/seconds, seconds)
	l.window.Join(m)
	values := m.Means("")
	l.diagnose(values)
	if l.OnStep != nil {
		l.OnStep(l.state.Step, l.Total(), values)
	}
	if due(l.state.Step, l.Train.LogEvery) || l.state.Step == l.Total() {
		return l.log()
	}
	return nil
}

func (l *Loop) log() error {
	values := l.window.Means("")
	values["num_tokens"] = l.tokens
	l.window = train.NewMetrics()
	return l.Folder.Log(run.Record{Step: l.state.Step, Epoch: l.epoch(), Values: values})
}

func (l *Loop) notice(format string, args ...any) {
	if l.OnNotice != nil {
		l.OnNotice(fmt.Sprintf(format, args...))
	}
}
