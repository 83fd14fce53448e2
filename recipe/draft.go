package recipe

import (
	"context"

	"github.com/posttrain/posttrain/batch"
	"github.com/posttrain/posttrain/run"
	"github.com/posttrain/posttrain/train"
)

// Draft is a run up to its first step, without the weights of its model and without a folder: what a plan counts.
type Draft struct {
	*Job
	Unit string      // of the examples: pairs
	Loop *train.Loop // its learner has shapes alone

	Measured  [][]batch.Group // sets whose log-probs are measured once, ahead of the first step
	Layout    batch.Layout    // of Measured
	Reference string          // the folder of the model that measures; "": the one that is trained
}

// Drafter are the options of a recipe that can be planned.
type Drafter interface {
	Draft(ctx context.Context, r run.Reporter) (*Draft, error)
}

// OpenShapes is Open for a model without weights, and makes no run folder.
func (j *Job) OpenShapes() (err error) {
	j.Learner, err = train.Shapes(j.Engine, j.Model, j.Graph)
	return err
}
