package sft

import (
	"context"
	"slices"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/internal/track"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/rollout/local"
	"github.com/posttrain/posttrain/train"
)

// Run trains on demonstrations: it loads model and demonstrations, trains, saves the best model and reports. A nil
// Reporter is silent.
func Run(ctx context.Context, o Options, r run.Reporter) (*recipe.Result, error) {
	j, err := o.newJob(nil, r)
	if err != nil {
		return nil, err
	}
	defer j.Close()
	demos, heldOut, err := load(ctx, j, o)
	if err != nil {
		return nil, err
	}
	if err := j.SayMix(o.Data.Mix, demos.Mix); err != nil {
		return nil, err
	}
	if err := j.Open(); err != nil {
		return nil, err
	}
	j.Ready(0)
	l := &train.Loop{Course: j.Course(nil), Options: o.Train, Train: *demos, Eval: heldOut}
	j.SayShapes(l.Layout())
	return j.Learn(ctx, l, func([]run.Record) (string, error) { return "", nil })
}

// newJob opens engine and model; load is nil for a run that trains.
func (o *Options) newJob(load recipe.Loader, r run.Reporter) (*recipe.Job, error) {
	if err := Spec.Verify(o); err != nil {
		return nil, err
	}
	recipe.PinBackend(&o.Backend, o.Model, o.Train, o.Devices, false, r)
	if err := o.Place.PinChat(&o.Chat, o.Model); err != nil {
		return nil, err
	}
	return recipe.NewJob(recipe.Setup{
		Command: Command, Title: "SFT", Backend: o.Backend, Folder: o.Model, Load: load, Adapting: o.Adapting,
		Chat: o.Chat, Devices: o.Devices, Train: o.Train, Seed: o.Seed, Tracking: o.Tracking, Resolved: o.Resolved(),
		Place: o.Place,
	}, r)
}

// Draft makes the run up to its first step without the weights of the model. Close it.
func (o Options) Draft(ctx context.Context, r run.Reporter) (*recipe.Draft, error) {
	o.Tracking = track.Options{}
	j, err := o.newJob(local.LoadShapes, r)
	if err != nil {
		return nil, err
	}
	d := &recipe.Draft{Job: j, Unit: "demonstrations"}
	demos, heldOut, err := load(ctx, j, o)
	if err == nil {
		err = j.OpenShapes()
	}
	if err == nil {
		_, err = d.Learns(&train.Loop{Course: j.Course(nil), Options: o.Train, Train: *demos, Eval: heldOut})
	}
	return d.CloseOn(err)
}

// Rehearsal reads what a rehearsal tries of the run.
func (o *Options) Rehearsal() (*recipe.Rehearsal, error) {
	sources, err := recipe.Each(o.Data.Mix, func(name string) ([]data.Demonstration, error) {
		return read(run.Listen(nil), name, o.Seed)
	})
	return &recipe.Rehearsal{Model: o.Model, Chat: o.Chat, Backend: o.Backend, Seed: o.Seed, Limits: o.Data.Options,
		LossOn: o.Data.LossOn, Rows: slices.Concat(sources...)}, err
}

// embeddedDemonstrations is how many scenarios the embedded set has.
const embeddedDemonstrations = 4000

// load reads the training demonstrations and the held-out ones, which may be nil.
func load(ctx context.Context, j *recipe.Job, o Options) (demos, heldOut *train.Examples, err error) {
	demos, err = encodeAll(ctx, j, o)
	switch {
	case err != nil:
	case o.Data.Eval != "":
		heldOut, err = encode(ctx, j, o, o.Data.Eval)
	case o.Data.EvalFraction > 0:
		kept, held, err := o.Data.Split(len(demos.Groups), "demonstrations", o.Seed)
		return subset(demos, kept), subset(demos, held), err
	}
	return demos, heldOut, err
}

func subset(e *train.Examples, keep []int) *train.Examples {
	some := examples(data.Pick(e.Groups, keep), data.Pick(e.Sources, keep))
	some.Mix = e.Mix.Pick(keep)
	return some
}

func examples(groups []batch.Group, sources []string) *train.Examples {
	return &train.Examples{Method: &train.SFT{Groups: groups}, Groups: groups, Sources: sources}
}

// encodeAll encodes what is trained on.
func encodeAll(ctx context.Context, j *recipe.Job, o Options) (*train.Examples, error) {
	sources, err := recipe.Each(o.Data.Mix, func(name string) (*train.Examples, error) {
		return encode(ctx, j, o, name)
	})
	if err != nil {
		return nil, err
	}
	all, sizes := examples(nil, nil), []int(nil)
	for _, s := range sources {
		all = examples(append(all.Groups, s.Groups...), append(all.Sources, s.Sources...))
		sizes = append(sizes, len(s.Groups))
	}
	all.Mix = o.Data.Of(sizes...)
	return all, nil
}

// encode reads, encodes and applies the limits.
func encode(ctx context.Context, j *recipe.Job, o Options, path string) (*train.Examples, error) {
	demos, err := read(j, path, o.Seed)
	if err != nil {
		return nil, err
	}
	e := batch.Encoder{Tokenizer: j.Tokenizer}
	groups, err := recipe.Encode(ctx, &e, demos, func(e *batch.Encoder, d data.Demonstration) (batch.Group, error) {
		if o.Data.LossOn == "last" {
			d = d.Last()
		}
		return e.Demonstration(d, o.Data.LossOn == "all")
	})
	if err != nil {
		return nil, err
	}
	sources := make([]string, len(demos))
	for i, d := range demos {
		sources[i] = d.Source
	}
	keep, err := j.Limit(path, groups, o.Data.Options, e.Drift)
	if err != nil {
		return nil, err
	}
	return subset(examples(groups, sources), keep), nil
}

// read reads a file, or makes the ideal completions of embedded scenarios.
func read(r run.Reporter, path string, seed uint64) ([]data.Demonstration, error) {
	if path == embedded.Name {
		r.Say("embedded: %d synthetic contextual-integrity scenarios", embeddedDemonstrations)
		return ci.Demonstrations(ci.Synthesize(embeddedDemonstrations, seed), ci.Flaws{}, seed), nil
	}
	demos, report, err := data.ReadDemonstrations(path)
	if err != nil {
		return nil, err
	}
	r.Say("%s", report)
	return demos, nil
}
