package cirl

import (
	"context"

	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe"
)

// DryRun makes the run up to its first step without the weights of the model. Every answer is as long as
// sampling.max_new_tokens allows. Close it.
func (o Options) DryRun(_ context.Context, r run.Reporter) (*recipe.DryRun, error) {
	t, err := o.open(r, true)
	if err != nil {
		return nil, err
	}
	d := &recipe.DryRun{Run: t.Run, Unit: "prompts"}
	return d.Or(t.count(d))
}

// count fills in what the run does.
func (t *training) count(d *recipe.DryRun) error {
	if err := t.load(); err != nil {
		return err
	}
	return t.Count(d, t.rollouts, len(t.test))
}
