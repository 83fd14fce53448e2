package cirl

import (
	"context"

	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/internal/track"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/rollout/local"
)

// Draft makes the run up to its first step without the weights of the model. Every answer is as long as
// sampling.max_new_tokens allows. Close it.
func (o Options) Draft(_ context.Context, r run.Reporter) (*recipe.Draft, error) {
	o.Tracking = track.Options{}
	j, err := o.newJob(local.LoadShapes, r)
	if err != nil {
		return nil, err
	}
	d := &recipe.Draft{Job: j, Unit: "prompts"}
	return d.CloseOn(newTraining(j, o).draft(d))
}

// draft fills in what the run does.
func (t *training) draft(d *recipe.Draft) error {
	if err := t.load(); err != nil {
		return err
	}
	if err := t.OpenShapes(); err != nil {
		return err
	}
	if t.o.GRPO.NeedsReference() {
		d.ReferenceBytes = t.Learner.ReferenceBytes()
	}
	if err := d.Trains(t.trainer()); err != nil {
		return err
	}
	if t.o.Rollout.Engine != "" { // other machines sample
		return nil
	}
	sampler := t.newSampler()
	defer sampler.Close()
	plan, err := t.plan(sampler)
	d.Sampling = &recipe.Sampling{Plan: plan, New: t.o.Sampling.MaxNew, Answers: t.answers(d.Steps)}
	return err
}

// answers is how many completions a run of that length draws: those of its groups, of validations and of the tests at
// both ends.
func (t *training) answers(steps int) float64 {
	evaluated := t.Train
	evaluated.EvalEvery = t.o.Validation.Every
	return float64(steps*t.o.GRPO.Prompts*t.o.GRPO.GroupSize) + float64(evaluated.Evaluations(steps)*len(t.held)) +
		2*float64(len(t.test))
}
