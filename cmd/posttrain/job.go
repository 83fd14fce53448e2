package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/posttrain/posttrain/batch"
	"github.com/posttrain/posttrain/run"
	"github.com/posttrain/posttrain/train"
)

// job is a training command on its way: the world, the run folder, the loop.
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
	loop     *train.Loop
	progress *run.Progress
	earlier  bool // the loop continues from a checkpoint
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

// warn says what is odd about the tokenizer.
func (j *job) warn() {
	for _, w := range j.world.tokenizer.Warnings() {
		j.say("warning: %s", w)
	}
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
		err = j.openEarlier()
	} else {
		err = j.create()
	}
	if err != nil {
		return err
	}
	learner, err := train.NewLearner(j.world.engine, j.world.model, j.world.graph)
	if err != nil {
		j.folder.Close()
		return err
	}
	j.loop = &train.Loop{
		Options: j.options, Learner: learner, Folder: j.folder, Seed: j.seed, ConfigHash: run.HashConfig(j.resolved),
		Export:   train.Exporter{Model: j.world.model, Tokenizer: j.world.tokenizer},
		OnNotice: func(line string) { j.progress.Notice(line) },
		OnStep:   func(step, total int, values map[string]float64) { j.progress.Step(step, values) },
	}
	return nil
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

// openEarlier opens the folder of the run to go on with; trainFlags.check has compared the configs.
func (j *job) openEarlier() (err error) {
	j.folder, err = run.Open(j.flags.resume)
	return err
}

func (j *job) close() {
	j.loop.Learner.Close()
	j.folder.Close()
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
func (j *job) reference(ctx context.Context, name string, l *train.Learner, set *pairSet) error {
	layout := batch.Layout{Share: j.loop.Share, Pad: j.micro()}
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

// run trains from the start or from the newest checkpoint, and reports.
func (j *job) run(ctx context.Context) error {
	if err := j.resume(); err != nil {
		return err
	}
	j.progress = j.newProgress("step", j.loop.Step(), j.loop.Total())
	err := j.loop.Run(ctx)
	j.progress.Close()
	if errors.Is(err, train.ErrInterrupted) {
		return fmt.Errorf("%w at step %d of %d, saved: go on with %s", err, j.loop.Step(), j.loop.Total(), j.flags.again(j.folder.Dir))
	}
	if err != nil {
		return err
	}
	return j.finish()
}

// resume loads the newest checkpoint of a resumed run; a run that was stopped before its first starts over.
func (j *job) resume() error {
	if j.flags.resume == "" {
		return nil
	}
	warnings, err := j.loop.Resume()
	for _, w := range warnings {
		fmt.Fprintln(j.err, "warning: "+string(w))
	}
	if errors.Is(err, run.ErrNoCheckpoint) && len(warnings) == 0 {
		_, err = j.folder.CutMetrics(-1)
	}
	if err == nil {
		j.say("%s: going on after step %d of %d", j.folder.Dir, j.loop.Step(), j.loop.Total())
	}
	return err
}

// finish writes the trained model, the picture and the summary.
func (j *job) finish() error {
	t, _, err := j.loop.Learner.Read()
	if err != nil {
		return err
	}
	err = j.folder.WriteModel(func(dir string) error { return j.loop.Export.Write(dir, t.Weights, j.world.saveDType(j.options)) })
	if err != nil {
		return err
	}
	if err := j.folder.WriteCurves(j.title + " (posttrain " + j.flags.command + ")"); err != nil {
		return err
	}
	records, err := j.folder.ReadMetrics()
	if err != nil {
		return err
	}
	text := summary(j, records)
	if err := j.folder.WriteSummary(text); err != nil {
		return err
	}
	fmt.Fprint(j.out, text)
	return nil
}
