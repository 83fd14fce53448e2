package recipe

import (
	"context"

	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/train"
)

// DryRun is a run up to its first step, without the weights of its model and without a directory: what a plan counts.
type DryRun struct {
	*Run
	Unit      string // of the examples: pairs
	Examples  int    // to train on
	Steps     int
	Evaluates bool
	train.Survey
	ReferenceOnce  int       // bytes of a reference of its own that measures ahead of training, and is closed
	ReferenceBytes int       // for each trained parameter, of a reference that stays loaded
	Sampling       *Sampling // nil: nothing is sampled by this process

	Rehearse func(ctx context.Context) error // draws the answers of a step on a device that is not there; nil: none
}

// Sampling is what a run samples.
type Sampling struct {
	rollout.Plan         // of a step
	Answers      float64 // in the whole run, with its evaluations
}

// Planned are the options of a recipe that can be planned.
type Planned interface {
	DryRun(ctx context.Context, r run.Reporter) (*DryRun, error)
}

// Count fills in what training on a source does, which can be surveyed.
func (d *DryRun) Count(source interface {
	train.Source
	Survey(*train.Survey) error
}) error {
	t, err := d.Trainer(source)
	if err != nil {
		return err
	}
	_, metric := source.Evaluation()
	d.Examples, d.Steps, d.Evaluates = source.Size(), t.Total(), metric != ""
	return source.Survey(&d.Survey)
}

// DryRunOf counts a run that learns from a set, of which err says that it was not read.
func DryRunOf(r *Run, unit string, set *train.Dataset, err error) (*DryRun, error) {
	d := &DryRun{Run: r, Unit: unit}
	if err == nil {
		err = r.Start()
	}
	if err == nil {
		err = d.Count(set)
	}
	return d.Or(err)
}

// Or is the dry run, closed if there is an error.
func (d *DryRun) Or(err error) (*DryRun, error) {
	if err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}
