package sft

import (
	"context"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/train"
)

// Run trains on demonstrations: it loads model and demonstrations, trains, saves the best model and reports. A nil
// Reporter is silent.
func Run(ctx context.Context, o Options, reporter run.Reporter) (*recipe.Result, error) {
	r, err := o.open(reporter, false)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	set, err := load(ctx, r, o)
	if err != nil {
		return nil, err
	}
	return r.Learn(ctx, set, func([]run.Record) string { return "" })
}

// open opens engine and model.
func (o *Options) open(reporter run.Reporter, dry bool) (*recipe.Run, error) {
	if err := Spec.Verify(o); err != nil {
		return nil, err
	}
	return recipe.Open(recipe.Config{Base: &o.Base, Command: Command, Title: "SFT", Options: o, Dry: dry}, reporter)
}

// DryRun makes the run up to its first step without the weights of the model. Close it.
func (o Options) DryRun(ctx context.Context, reporter run.Reporter) (*recipe.DryRun, error) {
	r, err := o.open(reporter, true)
	if err != nil {
		return nil, err
	}
	set, err := load(ctx, r, o)
	return recipe.DryRunOf(r, "demonstrations", set, err)
}

// Rehearsal reads what a rehearsal looks at.
func (o *Options) Rehearsal() (*recipe.Rehearsal, error) {
	rows, _, err := recipe.ReadAll(o.Data.Files, func(name string) ([]data.Demonstration, error) {
		return o.read(run.Listen(nil), name)
	})
	return &recipe.Rehearsal{Model: o.Model, Adapter: o.Adapting.Adapter, Chat: o.Chat, Limits: o.Data.Options,
		LossOn: o.Data.LossOn, Rows: rows}, err
}

// embeddedDemonstrations is how many scenarios the embedded set has.
const embeddedDemonstrations = 4000

// load reads the demonstrations to train on and the held-out ones.
func load(ctx context.Context, r *recipe.Run, o Options) (*train.Dataset, error) {
	demos, held, err := recipe.Load(ctx, r, o.Data.Source, recipe.Encoding[data.Demonstration]{
		Unit: "demonstrations",
		Read: func(name string) ([]data.Demonstration, error) { return o.read(r, name) },
		Encode: func(e *batch.Encoder, d data.Demonstration) (train.Example, error) {
			g, err := e.Demonstration(d, batch.Target(o.Data.LossOn))
			return train.Example{Group: g, Source: d.Source}, err
		},
		Limit: func(name string, groups []batch.Group, drift int) ([]int, error) {
			return r.Limit(name, groups, o.Data.Options, drift)
		},
	})
	return &train.Dataset{Method: train.SFT{}, Examples: demos, Held: held}, err
}

// read reads a file, or makes the ideal completions of embedded scenarios.
func (o *Options) read(reporter run.Reporter, path string) ([]data.Demonstration, error) {
	if path == embedded.Name {
		reporter.Say("embedded: %d synthetic contextual-integrity scenarios", embeddedDemonstrations)
		return ci.Demonstrations(ci.Synthesize(embeddedDemonstrations, o.Seed), ci.Flaws{}, o.Seed), nil
	}
	demos, report, err := data.ReadDemonstrations(path, o.Data.Columns...)
	if err == nil {
		reporter.Say("%s", report)
	}
	return demos, err
}

// Sweeps are the sweeps of the command.
var Sweeps = recipe.NewSweeps(recipe.Sweeps[Options]{Spec: Spec, Example: "train.learning_rate=1e-5,2e-5,5e-5",
	Split: "eval", Columns: []string{"loss"},
	Tested: func(o *Options) bool { return o.Data.HasEval() }}, Run)
