package train

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/run"
)

// ErrInterrupted says that a loop stopped early because its context ended: what it had done is saved.
var ErrInterrupted = errors.New("interrupted")

// Course is what every training loop has beside its steps: how far the run is, the metrics since the last line, the
// checkpoints and the best of them. A loop embeds a Course and gives it a [Plan].
//
// Where there is an evaluation, it runs before the first step, every EvalEvery steps and after the last step. The best
// checkpoint is that of the best evaluated step. Step 0 counts too: if no step improved on the model that training
// started from, that model is the best. [Course.LoadBest] gives the weights of the best checkpoint.
//
// Checkpoints are written while the next steps go on: a step waits for the copy of the state, and for the checkpoint
// before if that is still being written. One that is due by time follows later then; before an evaluation it waits.
// Where memory is short there is no copy: the steps wait while the state is written, tensor by tensor.
type Course struct {
	Learner    *Learner
	Folder     *run.Folder // nil: nothing is logged or saved
	Export     Exporter    // writes checkpoints into Folder; empty: the learner's model, without a tokenizer
	Seed       uint64
	ConfigHash string
	OnStep     func(step, total int, values map[string]float64) // called after every step; may be nil
	OnNotice   func(line string)                                // gets evaluations and warnings in words; may be nil
	Clock      func() time.Time                                 // says when a checkpoint is due; nil: time.Now
	Memory     func() uint64                                    // bytes that are free; nil: backend.FreeMemory
	Until      int                                              // step to stop after, as if interrupted; 0: none
	AtEnd      func(context.Context) error                      // called while the last step is saved; may be nil

	State run.State  // how far the run is
	Kept  run.Values // further numbers of the loop that checkpoints keep

	plan      Plan
	window    *Metrics // since the last metrics line
	tokens    float64  // since the run began
	evaluated int      // the last step that was evaluated; -1: none
	clean     bool     // a checkpoint holds the present state, or is about to
	saved     time.Time
	writer    writer
	short     bool // it was said that memory is short
}

// Plan is what a loop does.
type Plan struct {
	Options  Options // when to log, evaluate and save
	Total    int     // steps of the whole run
	Examples int     // of an epoch
	Data     string  // identifies the examples; a run is not resumed with others

	// Step is one step. It ends with [Course.Record], or gives ErrInterrupted if the context ended before it learnt
	// anything, or an Outage.
	Step func(context.Context) error
	// Evaluate measures the held-out examples, or gives ErrInterrupted; nil: no evaluation.
	Evaluate func(context.Context) (map[string]float64, error)
}

// Step is the number of steps done.
func (c *Course) Step() int { return c.State.Step }

// Begin sets the plan. A fresh course starts at step 0, a resumed one stays where it is.
func (c *Course) Begin(p Plan) {
	if c.plan = p; c.window == nil {
		c.window, c.evaluated, c.State.Seed = NewMetrics(), -1, c.Seed
		if c.Kept == nil {
			c.Kept = run.Values{}
		}
	}
}

// Follow runs a plan to its last step, or until ctx ends. Then it saves a checkpoint, and the error is ErrInterrupted.
func (c *Course) Follow(ctx context.Context, p Plan) error {
	c.Begin(p)
	c.saved = c.now()
	err := c.steps(ctx)
	if err == nil && c.AtEnd != nil {
		err = c.AtEnd(ctx)
	}
	if written := c.writer.wait(); err == nil || errors.Is(err, ErrInterrupted) {
		err = cmp.Or(written, err)
	}
	if err == nil || errors.Is(err, ErrInterrupted) {
		return err
	}
	return c.explain(err)
}

// steps runs the steps. A checkpoint may still be written when it ends.
func (c *Course) steps(ctx context.Context) error {
	for {
		err := c.between(ctx)
		if err == nil && c.State.Step >= c.plan.Total {
			return nil
		}
		if err == nil {
			err = c.plan.Step(ctx)
		}
		if errors.As(err, new(Outage)) {
			return errors.Join(err, c.save(true, false))
		}
		if errors.Is(err, ErrInterrupted) {
			return cmp.Or(c.save(true, false), err)
		}
		if err != nil {
			return err
		}
	}
}

// between does what is due between two steps: an evaluation, a checkpoint. An evaluation may take long, so that a
// checkpoint that is due by time comes before it, and again after it. Where checkpoints fall changes no result.
func (c *Course) between(ctx context.Context) (err error) {
	step, last, best := c.State.Step, c.State.Step >= c.plan.Total, false
	if err := c.held(); err != nil {
		return err
	}
	if err := c.writer.check(); err != nil {
		return err
	}
	if c.plan.Evaluate != nil && c.evaluated != step && (step == 0 || last || due(step, c.plan.Options.EvalEvery)) {
		if c.late() {
			if err := c.save(true, false); err != nil {
				return err
			}
		}
		if best, err = c.evaluate(ctx); err != nil {
			return err
		}
	}
	whole := last || step > 0 && due(step, c.plan.Options.CheckpointEvery) ||
		c.late() && !c.writer.busy()
	if err := c.save(whole, best); err != nil {
		return err
	}
	if ctx.Err() != nil && !last || step > 0 && step == c.Until {
		return ErrInterrupted
	}
	return nil
}

// held returns an error if the run folder was taken away.
func (c *Course) held() error {
	if c.Folder == nil {
		return nil
	}
	return c.Folder.Held()
}

func due(step, every int) bool { return every > 0 && step%every == 0 }

// late reports whether a checkpoint is due by time.
func (c *Course) late() bool {
	most := c.plan.Options.CheckpointMinutes
	return most > 0 && c.now().Sub(c.saved).Minutes() >= most
}

func (c *Course) now() time.Time {
	if c.Clock == nil {
		return time.Now()
	}
	return c.Clock()
}

// evaluate logs the metrics of an evaluation and says whether it is the best so far.
func (c *Course) evaluate(ctx context.Context) (best bool, err error) {
	values, err := c.plan.Evaluate(ctx)
	if err != nil {
		return false, err
	}
	name := c.plan.Options.EvalMetric
	value, ok := values[name]
	if !ok {
		measured := strings.Join(slices.Sorted(maps.Keys(values)), ", ")
		return false, fmt.Errorf("train.eval_metric %q is not measured: want one of %s", name, measured)
	}
	if err := c.log(values, nil); err != nil {
		return false, err
	}
	c.evaluated, c.clean = c.State.Step, false
	if !finite(value) || c.State.Best != nil && !better(name, value, c.State.Best.Value) {
		return false, nil
	}
	c.State.Best = &run.Best{Step: c.State.Step, Metric: name, Value: value}
	return true, nil
}

// better compares two values of a metric: losses are better when small, everything else when large.
func better(name string, value, than float64) bool {
	if strings.HasSuffix(name, "loss") {
		return value < than
	}
	return value > than
}

// Record counts a step on this number of examples, adds its figures to the next metrics line, and writes the line when
// it is due.
func (c *Course) Record(m *Metrics, examples int, tokens, seconds float64) error {
	at := c.State.Position + examples
	c.State.Step, c.State.Epoch, c.State.Position = c.State.Step+1, c.State.Epoch+at/c.plan.Examples, at%c.plan.Examples
	c.tokens, c.clean = c.tokens+tokens, false
	m.Add("step_time", seconds, 1)
	m.Add("tokens_per_second", tokens/seconds, seconds)
	c.window.Join(m)
	if c.OnStep != nil {
		c.OnStep(c.State.Step, c.plan.Total, m.Means(""))
	}
	if !due(c.State.Step, c.plan.Options.LogEvery) && c.State.Step != c.plan.Total {
		return nil
	}
	values, spreads := c.window.Means(""), c.window.spreads
	values["num_tokens"] = c.tokens
	c.window = NewMetrics()
	return c.log(values, spreads)
}

func (c *Course) log(values map[string]float64, spreads map[string][]float64) error {
	if c.Folder == nil {
		return nil
	}
	epoch := float64(c.State.Epoch) + float64(c.State.Position)/float64(c.plan.Examples)
	return c.Folder.Log(run.Record{Step: c.State.Step, Epoch: epoch, Values: values, Spreads: spreads})
}

// Notice passes a line on to OnNotice.
func (c *Course) Notice(format string, args ...any) {
	if c.OnNotice != nil {
		c.OnNotice(fmt.Sprintf(format, args...))
	}
}

// Names of a course's own numbers in run.State.Metrics.
const tokensKey, updatesKey, evaluatedKey = "tokens", "updates", "validated"

// save writes a checkpoint of the present state, unless there is one, and the present weights if they are the best. It
// returns when they are copied, or written.
func (c *Course) save(whole, best bool) error {
	whole = whole && !c.clean
	if c.Folder == nil || !whole && !best {
		return nil
	}
	if err := c.writer.wait(); err != nil { // before the copy, so that there is one copy at most
		return err
	}
	copied := c.hasRoom(whole)
	s, err := c.snapshot(whole, best, copied)
	if err != nil {
		return err
	}
	if whole {
		c.clean, c.saved = true, c.now()
	}
	if !copied {
		return c.write(s)
	}
	return c.writer.start(func() error { return c.write(s) })
}

// hasRoom says whether a copy of the state takes at most half of the free memory, so that the steps have the rest.
func (c *Course) hasRoom(whole bool) bool {
	need := uint64(4 * c.Learner.Size())
	if whole {
		need *= 3
	}
	free := backend.FreeMemory
	if c.Memory != nil {
		free = c.Memory
	}
	left := free()
	if need <= left/2 {
		return true
	}
	if !c.short {
		c.short = true
		c.Notice("checkpoints: steps wait while one is written, since a copy of weights and moments takes %.2f GB and "+
			"%.2f GB of memory are free", float64(need)/1e9, float64(left)/1e9)
	}
	return false
}

// snapshot is what is saved.
type snapshot struct {
	run.State
	from        source
	whole, best bool
}

// snapshot copies the state, or without a copy gives one that is valid until the next update.
func (c *Course) snapshot(whole, best, copied bool) (s snapshot, err error) {
	s = snapshot{State: c.State, from: c.Learner.store, whole: whole, best: best}
	if copied {
		if s.from, err = c.Learner.copyFor(whole); err != nil {
			return s, err
		}
	}
	if !whole {
		return s, nil
	}
	now := c.identity()
	s.Seed, s.ConfigHash, s.Engine, s.Data = now.Seed, now.ConfigHash, now.Engine, now.Data
	s.Metrics = c.window.Pack()
	maps.Copy(s.Metrics, c.Kept)
	s.Metrics[tokensKey], s.Metrics[updatesKey] = c.tokens, float64(c.Learner.updates)
	s.Metrics[evaluatedKey] = float64(c.evaluated)
	return s, nil
}

// write writes a snapshot, and removes what is not kept. The best weights come first: a checkpoint names none that are
// not there.
func (c *Course) write(s snapshot) error {
	if s.best {
		if err := c.Folder.WriteBest(s.Step, func(dir string, wrote run.Wrote) error {
			return c.exporter().writeBest(dir, s.from, wrote)
		}); err != nil {
			return err
		}
	}
	if s.whole {
		if _, err := c.Folder.WriteHashedCheckpoint(s.Step, func(dir string, wrote run.Wrote) error {
			if err := c.exporter().writeCheckpoint(dir, s.from, wrote); err != nil {
				return err
			}
			return s.State.Write(dir)
		}); err != nil {
			return err
		}
	}
	if s.best {
		if err := c.Folder.MarkBest(s.Step, s.Best.Metric, s.Best.Value); err != nil {
			return err
		}
	}
	return c.Folder.PruneAt(c.plan.Options.CheckpointKeep, s.Step)
}

func (c *Course) exporter() Exporter {
	if c.Export.Model == nil {
		return Exporter{Model: c.Learner.model, Tokenizer: c.Export.Tokenizer}
	}
	return c.Export
}

// identity is what must be the same when a run is resumed.
func (c *Course) identity() run.State {
	return run.State{Seed: c.Seed, ConfigHash: c.ConfigHash, Engine: c.Learner.Engine(), Data: c.plan.Data}
}

// Restore continues from the newest good checkpoint of the folder. Its warnings name the checkpoints that it skipped.
// Metrics and samples of later steps are removed: they are about to be measured again. A run that ended before its
// first checkpoint starts over.
func (c *Course) Restore(p Plan) ([]run.Warning, error) {
	if c.Folder == nil {
		return nil, errors.New("there is no run folder to resume from")
	}
	c.plan = p
	newest, warnings, err := c.Folder.Latest()
	if errors.Is(err, run.ErrNoCheckpoint) && len(warnings) == 0 {
		if err := c.cut(-1); err != nil {
			return nil, err
		}
		return nil, cmp.Or(c.Folder.RestoreBest(nil), c.Folder.Prune(p.Options.CheckpointKeep))
	}
	if err != nil {
		return warnings, err
	}
	if err := c.Folder.ReadCheckpoint(newest, c.load); err != nil {
		return warnings, err
	}
	if err := c.cut(c.State.Step); err != nil {
		return warnings, err
	}
	if err := c.Folder.RestoreBest(c.State.Best); err != nil {
		return warnings, err
	}
	switch best, err := c.Folder.Best(); {
	case err != nil:
		return warnings, err
	case best == nil && c.State.Best != nil: // else a weight that is gone would be better than all that follow
		c.Notice("the best weights, of step %d, are gone: the best of the evaluations that follow are kept",
			c.State.Best.Step)
		c.State.Best = nil
	}
	if len(warnings) > 0 {
		return warnings, nil // the damaged checkpoints are newer than the one in use, which must stay
	}
	return nil, c.Folder.PruneAt(p.Options.CheckpointKeep, newest.Step) // a kill may have come before it
}

// cut removes what was logged after a step, and at that step by an evaluation that the checkpoint does not know of.
func (c *Course) cut(step int) error {
	repeated := c.evaluated != step
	_, err := c.Folder.DropMetrics(func(r run.Record) bool {
		_, evaluation := r.Values[c.plan.Options.EvalMetric]
		return r.Step > step || r.Step == step && evaluation && repeated
	})
	if err != nil {
		return err
	}
	if repeated { // samples are an evaluation's
		step--
	}
	return c.Folder.CutSamples(step)
}

func (c *Course) load(dir string) error {
	s, err := run.ReadState(dir)
	if err != nil {
		return err
	}
	if err := checkSameRun(s, c.identity()); err != nil {
		return err
	}
	from, err := c.exporter().openCheckpoint(dir)
	if err != nil {
		return err
	}
	defer from.close()
	if err := c.Learner.write(from, int(s.Metrics[updatesKey])); err != nil {
		return err
	}
	c.State, c.clean = s, true
	c.window, c.tokens, c.evaluated = UnpackMetrics(s.Metrics), s.Metrics[tokensKey], s.Step
	if step, ok := s.Metrics[evaluatedKey]; ok { // older checkpoints of mappo and sft were written after the evaluation
		c.evaluated = int(step)
	}
	c.Kept = maps.Clone(s.Metrics)
	maps.DeleteFunc(c.Kept, func(name string, _ float64) bool {
		return strings.HasPrefix(name, sumOf) || strings.HasPrefix(name, weightOf)
	})
	return nil
}

// checkSameRun refuses to continue a run with another seed, config, engine or data than it was started with.
func checkSameRun(saved, now run.State) error {
	switch {
	case saved.Seed != now.Seed:
		return fmt.Errorf("the run was started with seed %d, now it is %d", saved.Seed, now.Seed)
	case saved.ConfigHash != now.ConfigHash:
		return errors.New("the config is not the one that the run was started with")
	case saved.Engine != now.Engine:
		return fmt.Errorf("the run was started on engine %s, now it is %s: engines round differently; name it with "+
			"--backend %s",
			saved.Engine, now.Engine, saved.Engine)
	case saved.Data != now.Data:
		return errors.New("the training or evaluation data (or the tokenizer) has changed since the run was started: " +
			"start a new run with --out DIR")
	}
	return nil
}

// LoadBest puts the weights of the best checkpoint into the learner and returns which one that is. It returns nil where
// nothing was evaluated or nothing is saved: the present weights are the result then. No step may follow.
func (c *Course) LoadBest() (*run.Best, error) {
	if c.Folder == nil {
		return nil, nil
	}
	best, err := c.Folder.Best()
	if best == nil || err != nil {
		return nil, err
	}
	return best, c.Folder.ReadBest(best, func(dir string) error {
		from, err := c.exporter().openBest(dir)
		if err != nil {
			return err
		}
		defer from.close()
		return c.Learner.writeWeights(from)
	})
}

// BadWeights is an error that the weights of the present step caused, such as a loss that is not finite.
type BadWeights struct{ Err error }

func (e BadWeights) Error() string { return e.Err.Error() }

// Unwrap gives the cause.
func (e BadWeights) Unwrap() error { return e.Err }

// Outage is an error from outside, such as a server's, before a step has learnt anything or in an evaluation: the steps
// before it are saved.
type Outage struct{ Err error }

func (e Outage) Error() string { return e.Err.Error() }

// Unwrap gives the cause.
func (e Outage) Unwrap() error { return e.Err }

// explain adds the checkpoint that a failed run can continue from. With bad weights that is one of an earlier step. A
// checkpoint that could not be saved says it by itself.
func (c *Course) explain(err error) error {
	if c.Folder == nil || errors.As(err, new(*run.SaveError)) || errors.Is(err, run.ErrLost) {
		return err
	}
	before := c.State.Step + 1
	if errors.As(err, new(BadWeights)) {
		before--
	}
	good, _, e := c.Folder.LatestBefore(before)
	if e == nil {
		return fmt.Errorf("%w (the last good checkpoint is %s)", err, good.Dir)
	}
	if best, e := c.Folder.Best(); e == nil && best != nil {
		return fmt.Errorf("%w (there is no good checkpoint yet; the best weights are %s)", err,
			c.Folder.Path(filepath.FromSlash(best.Checkpoint)))
	}
	return fmt.Errorf("%w (there is no good checkpoint yet)", err)
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
