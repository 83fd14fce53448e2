package recipe

import (
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/rollout/local"
)

// Rehearsal is what a rehearsal looks at: the rows as answers to learn, and all that makes tokens of them.
type Rehearsal struct {
	Model   string
	Adapter string // its chat template is taken, see [local.Chat.Apply]
	Chat    local.RowChat
	Limits  batch.Options
	LossOn  string // as in data.loss_on of sft
	Rows    []data.Demonstration
}

// Rehearser are the options of a recipe that can be rehearsed.
type Rehearser interface {
	Rehearsal() (*Rehearsal, error)
}
