package main

import (
	"context"
	"errors"
	"fmt"

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
	LoadBest() (*run.Best, error)
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

// course is what every loop has beside its steps. Progress shows the metrics that pick leaves; nil: all.
func (j *job) course(pick func(map[string]float64) map[string]float64) train.Course {
	return train.Course{
		Learner: j.learner, Folder: j.folder, Export: j.exporter(), Seed: j.seed, ConfigHash: run.HashConfig(j.resolved), OnNotice: j.notice,
		OnStep: func(step, _ int, values map[string]float64) {
			if pick != nil {
				values = pick(values)
			}
			j.progress.Step(step, values)
		},
	}
}

// save writes the best weights of a finished loop as the trained model, and the picture. best is nil where nothing was
// evaluated: the model is that of the last step.
func (j *job) save(l loop) (best *run.Best, err error) {
	if best, err = l.LoadBest(); err != nil {
		return nil, err
	}
	t, _, err := j.learner.Read()
	if err != nil {
		return nil, err
	}
	err = j.folder.WriteModel(func(dir string) error { return j.exporter().Write(dir, t.Weights, j.world.saveDType(j.options)) })
	if err != nil {
		return nil, err
	}
	return best, j.folder.WriteCurves(j.title + " (posttrain " + j.flags.command + ")")
}

// conclude writes and prints the summary.
func (j *job) conclude(text string) error {
	if err := j.folder.WriteSummary(text); err != nil {
		return err
	}
	fmt.Fprint(j.out, text)
	return nil
}
