// Package plan is the recipe of posttrain plan: it says what a training run takes before anything of its size is read
// or allocated ([Make]). It reads the model's config.json, its tokenizer and the data; it builds the graphs of the
// run's programs from shapes alone, and counts their values and products.
//
// A rehearsal ([Rehearse]) finds what would make a run useless. Rows go through the run's own tokenizer, chat template
// and limits, and their tokens are examined: do the answers end with a token that the model stops at, is every message
// among the tokens, does the loss see the answers?
package plan

import (
	"context"
	"slices"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/train"
)

// Plan is what a run takes.
type Plan struct {
	Command    string           `json:"command"`
	Model      string           `json:"model"`
	Engine     string           `json:"engine"`
	DType      string           `json:"dtype"`      // of the products
	Parameters int              `json:"parameters"` // of the model, an adapter's included
	Trained    int              `json:"trained"`    // parameters
	Examples   int              `json:"examples"`   // to train on
	Unit       string           `json:"unit"`       // of the examples
	Steps      int              `json:"steps"`
	Tokens     float64          `json:"tokens"` // that the run trains on, without padding
	Shapes     []Shape          `json:"shapes"`
	Sampling   *recipe.Sampling `json:"sampling,omitempty"`
	Memory     Memory           `json:"memory"`
	Time       Time             `json:"time"`
	Device     *Device          `json:"device,omitempty"`    // nil: the run is for this machine
	Rehearsal  *Rehearsal       `json:"rehearsal,omitempty"` // nil: nothing was rehearsed
}

// Shape is a shape of batches, for which the engine compiles a program.
type Shape struct {
	Rows           int     `json:"rows"`
	Len            int     `json:"tokens"` // of a row
	Slots          int     `json:"predicted"`
	Trains         bool    `json:"trains"`  // else it measures log-probs
	Batches        float64 `json:"batches"` // in the run
	backend.Sketch `json:"program"`
}

// Make plans a run. What it compiles for a device that is not there it keeps in the folder into, "" for none.
func Make(ctx context.Context, o recipe.Planned, r run.Reporter, into string) (*Plan, error) {
	return makeIn(ctx, o, r, room{}, into)
}

// room is the memory that a run finds: what the process has before anything of the model's size, and what is free then.
// The zero value is measured. A device with memory of its own has nothing of the process.
type room struct {
	base, available int
	apart           bool // the memory is a device's own
}

func makeIn(ctx context.Context, o recipe.Planned, r run.Reporter, in room, into string) (*Plan, error) {
	d, err := o.DryRun(ctx, r)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	if in.available == 0 {
		in = roomOf(d.Engine)
	}
	p := &Plan{Command: d.Command, Model: d.Base.Model, Engine: d.Engine.Name, DType: d.Graph.ComputeType().String(),
		Parameters: d.Model.Config.ParamCount(), Trained: d.Learner.Size(), Examples: d.Examples, Unit: d.Unit,
		Steps: d.Steps, Sampling: d.Sampling}
	if err := p.sketch(d); err != nil {
		return nil, err
	}
	if d.Engine.Absent() != nil {
		p.Memory = p.forecastMemory(d, in)
		p.Device, err = p.compile(ctx, d, r, into)
		return p, err
	}
	if p.Time, err = timeOf(d, p.Shapes); err != nil {
		return nil, err
	}
	p.Memory = p.forecastMemory(d, in)
	return p, nil
}

// roomOf looks at the memory: engine, tokenizer and data are in it, as a run has them.
func roomOf(e *backend.Engine) room {
	process := backend.ResidentMemory()
	r := room{base: int(process), available: int(e.Room(process)), apart: e.OwnsMemory()}
	if r.apart {
		r.base = 0
	}
	return r
}

// sketched is the most programs of a kind that are counted, the largest first; the others take their share of tokens.
const sketched = 12

// sketch counts the programs: those that train first, of each kind the largest first.
func (p *Plan) sketch(d *recipe.DryRun) error {
	shapes, counted := slices.Clone(d.Survey.Shapes), map[bool]int{}
	slices.SortStableFunc(shapes, func(a, b train.ShapeCount) int {
		if measures := a.Objective == nil; measures != (b.Objective == nil) {
			return map[bool]int{false: -1, true: 1}[measures]
		}
		return train.Larger(a, b)
	})
	for _, count := range shapes {
		s := Shape{Rows: count.Packed.Rows, Len: count.Packed.Len, Slots: count.Packed.Slots, Batches: count.Count,
			Trains: count.Objective != nil}
		if s.Trains {
			p.Tokens += count.Tokens
		}
		if counted[s.Trains]++; counted[s.Trains] > sketched {
			s.scale(p.Shapes[len(p.Shapes)-1])
		} else if k, err := d.Learner.Sketch(count); err != nil {
			return err
		} else {
			s.Sketch = k
		}
		p.Shapes = append(p.Shapes, s)
	}
	return nil
}

// scale takes the numbers of a like shape by the number of tokens.
func (s *Shape) scale(like Shape) {
	share := float64(s.Rows*s.Len) / float64(like.Rows*like.Len)
	s.Sketch = like.Sketch
	for _, n := range []*int{&s.Alive, &s.Fused, &s.Wide, &s.Written} {
		*n = int(float64(*n) * share)
	}
	s.Flops *= share
}
