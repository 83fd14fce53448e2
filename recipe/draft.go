package recipe

import (
	"context"

	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/train"
)

// Draft is a run up to its first step, without the weights of its model and without a folder: what a plan counts.
type Draft struct {
	*Job
	Unit      string // of the examples: pairs
	Examples  int    // to train on
	Steps     int
	Evaluates bool
	train.Survey
	ReferenceOnce  int       // bytes of a reference of its own that measures ahead of training, and is closed
	ReferenceBytes int       // for each trained parameter, of a reference that stays loaded
	Sampling       *Sampling // nil: nothing is sampled by this process
}

// Sampling is what a run samples.
type Sampling struct {
	rollout.Plan         // of a step
	Answers      float64 // in the whole run, those of the evaluations included
	New          int     // tokens of an answer at most
}

// Drafter are the options of a recipe that can be planned.
type Drafter interface {
	Draft(ctx context.Context, r run.Reporter) (*Draft, error)
}

// Trains fills in what a trainer does, whose source can be surveyed.
func (d *Draft) Trains(t *train.Trainer) error {
	if err := t.Start(); err != nil {
		return err
	}
	_, metric := t.Source.Evaluation()
	d.Examples, d.Steps, d.Evaluates = t.Source.Size(), t.Total(), metric != ""
	return t.Source.(interface{ Survey(*train.Survey) error }).Survey(&d.Survey)
}

// CloseOn closes the draft if there is an error.
func (d *Draft) CloseOn(err error) (*Draft, error) {
	if err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// SaveDType is the type in which the result is stored.
func (j *Job) SaveDType() string { return j.saveDType(j.Train) }

// OpenShapes is Open for a model without weights, and makes no run folder.
func (j *Job) OpenShapes() (err error) {
	j.Learner, err = train.Shapes(j.Engine, j.Model, j.Graph)
	return err
}
