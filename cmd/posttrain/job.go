package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/posttrain/posttrain/batch"
	"github.com/posttrain/posttrain/run"
	"github.com/posttrain/posttrain/train"
)

// job is what the training commands have in common: the world, the run folder, the learner, and the way through a loop.
type job struct {
	streams
	flags    *trainFlags
	options  train.Options
	seed     uint64
	resolved []byte // config in force
	title    string
	beta     float64 // of a loss whose reference is the model before training; 0: of no such loss

	world    *world
	folder   *run.Folder
	learner  *train.Learner
	progress *run.Progress
}

// loop is what a job runs: a train.Loop or a grpo.Loop.
type loop interface {
	Resume() ([]run.Warning, error)
	Run(ctx context.Context) error
	Step() int
	Total() int
}

func newJob(s streams, f *trainFlags, o train.Options, seed uint64, resolved []byte, title string) *job {
	return &job{streams: s, flags: f, options: o, seed: seed, resolved: resolved, title: title}
}

// say prints to standard error, unless --quiet.
func (j *job) say(format string, args ...any) {
	if !j.flags.quiet {
		fmt.Fprintf(j.err, format+"\n", args...)
	}
}

// notice is a line of the loop's between two steps.
func (j *job) notice(line string) { j.progress.Notice(line) }

// openWorld opens engine and model, and says what is odd about the tokenizer.
func (j *job) openWorld(engine, folder string) (err error) {
	if j.world, err = openWorld(engine, folder, j.options); err != nil {
		return err
	}
	for _, w := range j.world.tokenizer.Warnings() {
		j.say("warning: %s", w)
	}
	return nil
}

// newProgress watches steps on standard error: a bar on a terminal, plain lines elsewhere, nothing with --quiet.
func (j *job) newProgress(unit string, start, total int) *run.Progress {
	return run.NewProgress(run.ProgressOptions{Out: j.err, Terminal: j.terminal, Quiet: j.flags.quiet, Unit: unit, Start: start, Total: total})
}

// limit applies the limits to the groups of a data set, and says what fell to them.
func (j *job) limit(path string, groups []batch.Group, o batch.Options, drift int) ([]int, error) {
	l := batch.Limit(groups, o, j.world.model.Config.MaxPositions)
	j.say("%s: %s", path, l)
	if drift > 0 {
		j.say("%s: %d completions merge with their prompt when tokenised together; they were tokenised apart", path, drift)
	}
	if len(l.Keep) == 0 {
		return nil, fmt.Errorf("%s: no row is left: %d are too long, %d have an empty answer (data.max_prompt_tokens %d, data.max_completion_tokens %d, data.max_tokens %d, where 0 is no limit; the model takes %d)",
			path, l.Dropped, l.Empty, o.MaxPromptTokens, o.MaxCompletionTokens, o.MaxTokens, j.world.model.Config.MaxPositions)
	}
	return l.Keep, nil
}

// open makes the run folder, or opens the one to go on with, and puts the model into the engine.
func (j *job) open() (err error) {
	if j.flags.resume != "" {
		j.folder, err = run.Open(j.flags.resume) // trainFlags.check has compared the configs
	} else {
		err = j.create()
	}
	if err != nil {
		return err
	}
	if j.learner, err = train.NewLearner(j.world.engine, j.world.model, j.world.graph); err != nil {
		j.folder.Close()
	}
	return err
}

func (j *job) create() (err error) {
	if j.folder, err = run.Create(j.flags.out, j.flags.command); err != nil {
		return err
	}
	if err := j.folder.WriteConfig(j.resolved); err != nil {
		j.folder.Close()
		return err
	}
	return nil
}

func (j *job) close() {
	j.learner.Close()
	j.folder.Close()
}

func (j *job) exporter() train.Exporter {
	return train.Exporter{Model: j.world.model, Tokenizer: j.world.tokenizer}
}

// newLoop is the loop of mappo and sft.
func (j *job) newLoop(examples, heldOut *train.Examples) *train.Loop {
	return &train.Loop{
		Options: j.options, Learner: j.learner, Train: *examples, Eval: heldOut,
		Folder: j.folder, Seed: j.seed, ConfigHash: run.HashConfig(j.resolved),
		Export: j.exporter(), OnNotice: j.notice,
		OnStep: func(step, total int, values map[string]float64) { j.progress.Step(step, values) },
	}
}

// shares decides whether prompts are shared in one row.
func (j *job) shares(groups []batch.Group) bool {
	switch j.options.SharePrefix {
	case "on":
		return true
	case "off":
		return false
	}
	return batch.SharePays(groups, j.micro(), j.world.model.Config.HiddenSize)
}

func (j *job) micro() int {
	if j.options.MicroBatchSize > 0 {
		return min(j.options.MicroBatchSize, j.options.BatchSize)
	}
	return j.options.BatchSize
}

// reference measures the log-probs of a set of pairs, or takes them from the run folder.
func (j *job) reference(ctx context.Context, name string, l *train.Learner, share bool, set *pairSet) error {
	layout := batch.Layout{Share: share, Pad: j.micro()}
	j.say("reference log-probs of %d pairs", len(set.groups))
	bar := j.newProgress("pair", 0, len(set.groups))
	sums, cached, err := train.CachedPairSums(j.folder.Path(name), l, set.groups, layout, func(done int) error {
		bar.Step(done, nil)
		return context.Cause(ctx)
	})
	bar.Close()
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("%w during the reference pass; nothing was trained yet: go on with %s", train.ErrInterrupted, j.flags.again(j.folder.Dir))
	}
	if err != nil {
		return err
	}
	if cached {
		j.say("taken from %s", j.folder.Path(name))
	}
	set.method.Reference = sums
	return nil
}

// run goes to the last step of a loop, from the start or from the newest checkpoint.
func (j *job) run(ctx context.Context, l loop) error {
	if err := j.resume(l); err != nil {
		return err
	}
	j.progress = j.newProgress("step", l.Step(), l.Total())
	err := l.Run(ctx)
	j.progress.Close()
	if errors.Is(err, train.ErrInterrupted) {
		return fmt.Errorf("%w at step %d of %d, saved: go on with %s", err, l.Step(), l.Total(), j.flags.again(j.folder.Dir))
	}
	return err
}

// resume loads the newest checkpoint of a resumed run; a run that was stopped before its first starts over.
func (j *job) resume(l loop) error {
	if j.flags.resume == "" {
		return nil
	}
	warnings, err := l.Resume()
	for _, w := range warnings {
		fmt.Fprintln(j.err, "warning: "+string(w))
	}
	if err == nil {
		j.say("%s: going on after step %d of %d", j.folder.Dir, l.Step(), l.Total())
	}
	return err
}

// train runs the loop of mappo or sft, and reports.
func (j *job) train(ctx context.Context, l *train.Loop) error {
	if err := j.run(ctx, l); err != nil {
		return err
	}
	if err := j.save(); err != nil {
		return err
	}
	records, err := j.folder.ReadMetrics()
	if err != nil {
		return err
	}
	return j.conclude(summary(j, l, records))
}

// save writes the trained model and the picture.
func (j *job) save() error {
	t, _, err := j.learner.Read()
	if err != nil {
		return err
	}
	err = j.folder.WriteModel(func(dir string) error { return j.exporter().Write(dir, t.Weights, j.world.saveDType(j.options)) })
	if err != nil {
		return err
	}
	return j.folder.WriteCurves(j.title + " (posttrain " + j.flags.command + ")")
}

// conclude writes and prints the summary.
func (j *job) conclude(text string) error {
	if err := j.folder.WriteSummary(text); err != nil {
		return err
	}
	fmt.Fprint(j.out, text)
	return nil
}
