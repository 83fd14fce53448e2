// Package train trains a model: a [Trainer] goes from step to step, a [Source] gives it what a step learns from, a
// [Learner] has the weights in an engine.
//
// Glossary:
//
//	example    an encoded prompt with its answers, and what a loss needs beside them ([Example])
//	step       one rollout batch or one batch of examples: for each of its minibatches one update of the optimiser
//	minibatch  what one update learns from, cut into microbatches that go through the model one after the other
//	objective  a loss over the log-probs of a microbatch, in the graph
//	method     an objective, and what it needs of examples: [SFT], [Preference], [KTO], [Reward]
//
// The sources are [Dataset], examples of a file, and other packages' sources, such as grpo.Rollouts, which samples and
// scores. The pipeline of a step: the source gives minibatches; [Learner.Accumulate] adds up the gradient of each, one
// microbatch after the other; [Learner.Update] applies AdamW; metrics are logged; an evaluation and a checkpoint follow
// where they are due.
package train

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/float"
	"github.com/posttrain/posttrain/internal/run"
)

// ErrInterrupted says that a trainer stopped early because its context ended: what it had done is saved.
var ErrInterrupted = errors.New("interrupted")

// Source gives a trainer what it learns from.
type Source interface {
	// Start refuses what cannot go well, and ties the source to its trainer. It comes before everything else.
	Start(t *Trainer) error
	// Size is the number of examples of an epoch.
	Size() int
	// Total is the number of steps of the whole run.
	Total() int
	// Hash identifies the examples: a run is not resumed with others.
	Hash() string
	// Next gives what the next step learns from, and adds what it knows of it to the metrics; or ErrInterrupted, if the
	// context ended, or a ServerError.
	Next(ctx context.Context, m *Metrics) (*Step, error)
	// Evaluation says how often Evaluate is due beside both ends of the run, and by which of its metrics the best
	// checkpoint is chosen; "": there is nothing to evaluate on.
	Evaluation() (every int, metric string)
	// Evaluate measures the held-out examples, or gives ErrInterrupted.
	Evaluate(ctx context.Context) (map[string]float64, error)
}

// Step is what a step learns from.
type Step struct {
	Minibatches []*Minibatch
	Examples    int              // of the epoch that it uses up
	Tokens      float64          // of all sequences, for the speed
	Learning    time.Time        // since when it learns from what was sampled, for time/train; zero: nothing was
	Done        func(m *Metrics) // called when the step is logged; may be nil
}

// Minibatch is what one update of the optimiser learns from.
type Minibatch struct {
	Microbatches []Microbatch
	// Report adds what was observed to the metrics of the update. It is false where nothing trains: then there is no
	// update. nil: all is said.
	Report func(m *Metrics) bool
	// Check looks at the metrics of the update after it; may be nil.
	Check func(m *Metrics) error
	// Blame makes an error of a gradient norm that is not finite.
	Blame func(norm float64) error

	passed func() // called after each microbatch; may be nil
}

// Microbatch goes through the model at once. The gradients of a minibatch's microbatches add up to its own.
type Microbatch struct {
	*batch.Packed
	Objective Objective // nil: the log-probs of its tokens are measured, without a gradient
	Inputs    []Input   // of the objective
	Scale     float64   // of the loss
	// Observe takes the loss times scale, and the objective's outputs, or the measured log-probs [slots].
	Observe func(loss float64, outputs [][]float32, m *Metrics) error
}

// Trainer trains a model step by step, from the start of a run or from its newest checkpoint.
//
// An evaluation runs before the first step, at the interval that the source gives, and after the last step. The best
// checkpoint has the weights of the best evaluated step. Step 0 counts too: if no step improved on the model that
// training started from, that model is the best. [Trainer.LoadBest] gives the weights of the best checkpoint.
type Trainer struct {
	Learner *Learner
	Source  Source
	Options Options // optimiser, schedule, length; when to log, evaluate and save
	Seed    uint64

	Folder     *run.Folder // the run directory; nil: nothing is logged or saved
	Export     Exporter    // writes checkpoints into Folder; empty: the learner's model, without a tokenizer
	ConfigHash string      // a run is not resumed with another config
	Last       int         // step to end with, where the schedule goes on after it; 0: the whole run's last

	// Callbacks, each of which may be nil.
	OnStep   func(step, total int, values map[string]float64) // after every step
	OnPart   func(run.Part)                                   // how far a step is
	OnNotice func(line string)                                // gets evaluations and warnings in words
	// OnEvaluate is called after an evaluation's metrics are logged, ahead of what is saved; may be nil.
	OnEvaluate func(ctx context.Context, step int) error
	Clock      func() time.Time // says when a checkpoint is due; nil: time.Now
	Memory     func() uint64    // bytes that are free; nil: backend.FreeMemory

	State run.State  // how far the run is
	Kept  run.Values // further numbers of the source that checkpoints keep

	window    *Metrics // since the last metrics line
	tokens    float64  // since the run began
	evaluated int      // the last step that was evaluated; -1: none
	clean     bool     // a checkpoint holds the present state, or is about to
	saved     time.Time
	writer    writer
	short     bool   // it was said that memory is short
	tied      Source // that Start has tied
	data      string // the source's hash; "": not computed yet
}

// Step is the number of steps done.
func (t *Trainer) Step() int { return t.State.Step }

// Total is the number of steps of the whole run.
func (t *Trainer) Total() int { return t.Source.Total() }

// lastStep is the step that Run ends with: the present one where patience is at its end.
func (t *Trainer) lastStep() int {
	if p := t.Options.Patience; p > 0 && t.State.Stale >= p {
		return t.State.Step
	}
	return cmp.Or(t.Last, t.Total())
}

// Start ties the source to the trainer. Run and Resume do so where it was not done; call it to use the source before
// them, and again after its examples have changed. A fresh trainer is at step 0, a resumed one stays where it is.
func (t *Trainer) Start() error {
	if t.window == nil {
		t.window, t.evaluated, t.State.Seed = NewMetrics(), -1, t.Seed
		if t.Kept == nil {
			t.Kept = run.Values{}
		}
	}
	t.data, t.tied = "", nil
	if err := t.Source.Start(t); err != nil {
		return err
	}
	t.tied = t.Source
	return nil
}

// tie starts a trainer whose source is not tied to it.
func (t *Trainer) tie() error {
	if t.tied == t.Source {
		return nil
	}
	return t.Start()
}

// Run trains to the last step, or until ctx ends. Then it finishes the step, saves a checkpoint, and the error is
// ErrInterrupted.
func (t *Trainer) Run(ctx context.Context) error {
	if err := t.tie(); err != nil {
		return err
	}
	t.saved = t.now()
	err := t.steps(ctx)
	if written := t.writer.wait(); err == nil || errors.Is(err, ErrInterrupted) {
		err = cmp.Or(written, err)
	}
	if err == nil || errors.Is(err, ErrInterrupted) {
		return err
	}
	return t.explain(err)
}

// steps goes from step to step. A checkpoint may still be written when it ends.
func (t *Trainer) steps(ctx context.Context) error {
	for {
		err := t.between(ctx)
		if err == nil && t.State.Step >= t.lastStep() {
			return nil
		}
		if err == nil {
			err = t.takeStep(ctx)
		}
		switch {
		case errors.As(err, new(ServerError)):
			return errors.Join(err, t.save(true, false))
		case errors.Is(err, ErrInterrupted):
			return cmp.Or(t.save(true, false), err)
		case err != nil:
			return err
		}
	}
}

// takeStep learns from what the source gives.
func (t *Trainer) takeStep(ctx context.Context) error {
	started, m := time.Now(), NewMetrics()
	s, err := t.Source.Next(ctx, m)
	if err != nil {
		return err
	}
	rate := t.Options.RateAt(t.State.Step, t.Total())
	part := run.Part{What: "learning", Start: time.Now()}
	for _, b := range s.Minibatches {
		part.Total += len(b.Microbatches)
	}
	t.Part(part)
	for _, b := range s.Minibatches {
		b.passed = func() { part.Done++; t.Part(part) }
		if err := t.update(b, rate, m); err != nil {
			return err
		}
	}
	m.Add("learning_rate", rate, 1)
	if !s.Learning.IsZero() {
		m.Add("time/train", time.Since(s.Learning).Seconds(), 1)
	}
	if err := t.record(m, s, time.Since(started).Seconds()); err != nil {
		return err
	}
	if s.Done != nil {
		s.Done(m)
	}
	return nil
}

// update makes one update of the optimiser.
func (t *Trainer) update(b *Minibatch, rate float64, m *Metrics) error {
	own := NewMetrics()
	learns, err := t.Learner.Pass(b, own)
	if err != nil {
		return err
	}
	norm := 0.0
	if learns {
		norm, err = t.Learner.Update(t.Options.AdamW(), rate)
	}
	if err != nil {
		return err
	}
	if !float.IsFinite(norm) {
		return b.Blame(norm)
	}
	if b.Check != nil {
		if err := b.Check(own); err != nil {
			return err
		}
	}
	m.Join(own)
	m.Add("grad_norm", norm, 1)
	return nil
}

// Pass adds up the gradient of a minibatch, and adds what it observes to the metrics. It is false where nothing trains.
func (l *Learner) Pass(b *Minibatch, m *Metrics) (learns bool, err error) {
	for _, p := range b.Microbatches {
		if err := l.pass(p, m); err != nil {
			return false, err
		}
		if b.passed != nil {
			b.passed()
		}
	}
	return b.Report == nil || b.Report(m), nil
}

// pass lets a microbatch through the model.
func (l *Learner) pass(p Microbatch, m *Metrics) error {
	if p.Objective == nil {
		logps, err := l.TokenLogps(p.Packed, nil)
		if err != nil {
			return err
		}
		return p.Observe(0, [][]float32{logps}, m)
	}
	loss, outputs, err := l.Accumulate(p.Packed, p.Objective, p.Inputs, p.Scale)
	if err != nil {
		return err
	}
	return p.Observe(loss, outputs, m)
}

// Gradient is the gradient of a minibatch's loss under the present weights, [weights] in the order of [Learner.Flat]:
// the numbers that a step applies. The weights stay. The metrics are the update's.
func (t *Trainer) Gradient(b *Minibatch) ([]float32, *Metrics, error) {
	m := NewMetrics()
	if _, err := t.Learner.Pass(b, m); err != nil {
		return nil, nil, err
	}
	g, err := t.Learner.TakeGradient()
	if err == nil && b.Check != nil {
		err = b.Check(m)
	}
	return g, m, err
}

// between does what is due between two steps: an evaluation, a checkpoint. An evaluation may take long, so that a
// checkpoint that is due by time comes before it, and again after it. Where checkpoints fall changes no result.
func (t *Trainer) between(ctx context.Context) (err error) {
	step, last, best := t.State.Step, t.State.Step >= t.lastStep(), false
	if t.Folder != nil {
		if err := t.Folder.Held(); err != nil { // it was taken away
			return err
		}
	}
	if err := t.writer.check(); err != nil {
		return err
	}
	every, metric := t.Source.Evaluation()
	if metric != "" && t.evaluated != step && (step == 0 || last || due(step, every)) {
		if t.late() {
			if err := t.save(true, false); err != nil {
				return err
			}
		}
		if best, err = t.evaluate(ctx, metric); err != nil {
			return err
		}
		if !last && t.State.Step >= t.lastStep() {
			last = true
			t.Notice("step %d: %d evaluations without a better %s than step %d's %.4f: training ends here (train.patience)",
				step, t.State.Stale, metric, t.State.Best.Step, t.State.Best.Value)
			if err := t.logWindow(); err != nil {
				return err
			}
		}
	}
	whole := last || step > 0 && due(step, t.Options.CheckpointEvery) || t.late() && !t.writer.busy()
	if err := t.save(whole, best); err != nil {
		return err
	}
	if ctx.Err() != nil && !last {
		return ErrInterrupted
	}
	return nil
}

func due(step, every int) bool { return every > 0 && step%every == 0 }

// late reports whether a checkpoint is due by time.
func (t *Trainer) late() bool {
	most := t.Options.CheckpointMinutes
	return most > 0 && t.now().Sub(t.saved).Minutes() >= most
}

func (t *Trainer) now() time.Time {
	if t.Clock == nil {
		return time.Now()
	}
	return t.Clock()
}

// evaluate logs the metrics of an evaluation and says whether it is the best so far by the metric of that name.
func (t *Trainer) evaluate(ctx context.Context, name string) (best bool, err error) {
	started := time.Now()
	values, err := t.Source.Evaluate(ctx)
	if err != nil {
		return false, err
	}
	value, ok := values[name]
	if !ok {
		measured := strings.Join(slices.Sorted(maps.Keys(values)), ", ")
		return false, fmt.Errorf("train.eval_metric %q is not measured: want one of %s", name, measured)
	}
	values["eval_runtime"] = time.Since(started).Seconds()
	if err := t.Log(values); err != nil {
		return false, err
	}
	t.evaluated, t.clean = t.State.Step, false
	if t.OnEvaluate != nil {
		if err := t.OnEvaluate(ctx, t.State.Step); err != nil {
			return false, err
		}
	}
	if t.State.Best != nil && !(float.IsFinite(value) && better(name, value, t.State.Best.Value)) {
		t.State.Stale++
		return false, nil
	}
	if !float.IsFinite(value) {
		return false, nil
	}
	t.State.Stale = 0
	t.State.Best = &run.Best{Step: t.State.Step, Metric: name, Value: value}
	return true, nil
}

// better compares two values of a metric: losses are better when small, everything else when large.
func better(name string, value, than float64) bool {
	if strings.HasSuffix(name, "loss") {
		return value < than
	}
	return value > than
}

// record counts a step, adds its figures to the next metrics line, and writes the line when it is due.
func (t *Trainer) record(m *Metrics, s *Step, seconds float64) error {
	at, n := t.State.Position+s.Examples, t.Source.Size()
	t.State.Step, t.State.Epoch, t.State.Position = t.State.Step+1, t.State.Epoch+at/n, at%n
	t.tokens, t.clean = t.tokens+s.Tokens, false
	m.Add("step_time", seconds, 1)
	m.Add("tokens_per_second", s.Tokens/seconds, seconds)
	t.window.Join(m)
	if t.OnStep != nil {
		t.OnStep(t.State.Step, t.lastStep(), m.Means(""))
	}
	if !due(t.State.Step, t.Options.LogEvery) && t.State.Step != t.lastStep() {
		return nil
	}
	return t.logWindow()
}

// logWindow logs what the steps since the last line came to, if there are any.
func (t *Trainer) logWindow() error {
	values := t.window.Means("")
	if len(values) == 0 {
		return nil
	}
	values["num_tokens"] = t.tokens
	t.window = NewMetrics()
	return t.Log(values)
}

// Log writes a metrics line of the present step.
func (t *Trainer) Log(values map[string]float64) error {
	if t.Folder == nil {
		return nil
	}
	epoch := float64(t.State.Epoch) + float64(t.State.Position)/float64(t.Source.Size())
	return t.Folder.Log(run.Record{Step: t.State.Step, Epoch: epoch, Values: values})
}

// Part passes on to OnPart how far a step is.
func (t *Trainer) Part(p run.Part) {
	if t.OnPart != nil {
		t.OnPart(p)
	}
}

// Notice passes a line on to OnNotice.
func (t *Trainer) Notice(format string, args ...any) {
	if t.OnNotice != nil {
		t.OnNotice(fmt.Sprintf(format, args...))
	}
}

// BadWeights is an error that the weights of the present step caused, such as a loss that is not finite.
type BadWeights struct{ Err error }

func (e BadWeights) Error() string { return e.Err.Error() }

// Unwrap gives the cause.
func (e BadWeights) Unwrap() error { return e.Err }

// ServerError is an error from outside, before a step has learnt anything or in an evaluation: the steps before it are
// saved.
type ServerError struct{ Err error }

func (e ServerError) Error() string { return e.Err.Error() }

// Unwrap gives the cause.
func (e ServerError) Unwrap() error { return e.Err }

// explain adds the checkpoint that a failed run can continue from. With bad weights that is one of an earlier step. A
// checkpoint that could not be saved says it by itself.
func (t *Trainer) explain(err error) error {
	if t.Folder == nil || errors.As(err, new(*run.SaveError)) || errors.Is(err, run.ErrLost) {
		return err
	}
	before := t.State.Step + 1
	if errors.As(err, new(BadWeights)) {
		before--
	}
	good, _, e := t.Folder.LatestBefore(before)
	if e == nil {
		return fmt.Errorf("%w (the last good checkpoint is %s)", err, good.Dir)
	}
	if best, e := t.Folder.Best(); e == nil && best != nil {
		return fmt.Errorf("%w (there is no good checkpoint yet; the best weights are %s)", err,
			t.Folder.Path(filepath.FromSlash(best.Checkpoint)))
	}
	return fmt.Errorf("%w (there is no good checkpoint yet)", err)
}
