package cirl

import (
	"context"

	"github.com/gomlx/compute"

	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe"
)

// DryRun makes the run up to its first step without the weights of the model. Every answer is as long as
// sampling.max_new_tokens allows. Close it.
func (o Options) DryRun(_ context.Context, r run.Reporter) (*recipe.DryRun, error) {
	j, err := o.open(r, true)
	if err != nil {
		return nil, err
	}
	d := &recipe.DryRun{Run: j, Unit: "prompts"}
	return d.Or(newTraining(j, o).count(d))
}

// count fills in what the run does.
func (t *training) count(d *recipe.DryRun) error {
	if err := t.load(); err != nil {
		return err
	}
	if err := t.Start(); err != nil {
		return err
	}
	if t.o.GRPO.NeedsReference() {
		d.ReferenceBytes, t.reference = t.Learner.ReferenceBytes(), []compute.Buffer{} // of which nothing is read
	}
	if err := d.Count(t.trainer()); err != nil {
		return err
	}
	if t.o.Rollout.Engine != "" { // other machines sample
		return nil
	}
	sampler := t.Sampler(t.o.Sampling.CacheGB)
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
