// Package plan is the recipe of posttrain plan: it says what a training run takes before anything of its size is read or
// allocated. It reads the model's config.json, its tokenizer and the data; it builds the graphs of the run's programs
// from shapes alone, and counts their values and products.
package plan

import (
	"cmp"
	"context"
	"slices"

	"github.com/posttrain/posttrain/backend"
	"github.com/posttrain/posttrain/batch"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/run"
	"github.com/posttrain/posttrain/train"
)

// Plan is what a run takes.
type Plan struct {
	Command    string  `json:"command"`
	Model      string  `json:"model"`
	Engine     string  `json:"engine"`
	DType      string  `json:"dtype"`      // of the products
	Parameters int     `json:"parameters"` // of the model, an adapter's included
	Trained    int     `json:"trained"`    // parameters
	Examples   int     `json:"examples"`   // to train on
	Unit       string  `json:"unit"`       // of the examples
	Steps      int     `json:"steps"`
	Tokens     float64 `json:"tokens"` // that the run trains on, without padding
	Shapes     []Shape `json:"shapes"`
	Memory     Memory  `json:"memory"`
}

// Shape is a shape of batches, for which the engine compiles a program.
type Shape struct {
	Rows    int     `json:"rows"`
	Len     int     `json:"tokens"` // of a row
	Slots   int     `json:"predicted"`
	Trains  bool    `json:"trains"` // else it measures log-probs
	Batches float64 `json:"batches"`
	Bytes   int     `json:"bytes"` // that the program takes beside its inputs
	Flops   float64 `json:"flops"` // of the matrix products of one batch
}

// Make plans a run.
func Make(ctx context.Context, o recipe.Drafter, r run.Reporter) (*Plan, error) {
	d, err := o.Draft(ctx, r)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	base := backend.ResidentMemory() // engine, tokenizer and data, as a run has them
	p := &Plan{Command: d.Command, Model: d.Folder, Engine: d.Engine.Name, DType: d.Graph.ComputeType().String(),
		Parameters: d.Model.Config.ParamCount(), Trained: d.Learner.Size(), Examples: len(d.Loop.Train.Groups),
		Unit: d.Unit}
	parts, err := p.survey(d)
	if err != nil {
		return nil, err
	}
	if err := p.sketch(d, parts); err != nil {
		return nil, err
	}
	p.Memory = p.memory(d, int(base))
	return p, nil
}

// survey lists the batches of the run: what is measured ahead of training, the steps, and the evaluation.
func (p *Plan) survey(d *recipe.Draft) ([]train.Part, error) {
	parts, steps, err := d.Loop.Survey()
	if err != nil {
		return nil, err
	}
	p.Steps = steps
	for _, part := range parts {
		p.Tokens += part.Tokens
	}
	for _, groups := range d.Measured {
		parts = append(parts, train.SurveyForward(groups, measuring(d, groups), 1)...)
	}
	if e := d.Loop.Eval; e != nil {
		parts = append(parts, train.SurveyForward(e.Groups, d.Loop.Layout(), d.Train.Evaluations(steps))...)
	}
	return merge(parts), nil
}

// measuring is the layout in which groups are measured.
func measuring(d *recipe.Draft, groups []batch.Group) batch.Layout {
	if l := d.Layout; l.Shapes != nil {
		return l
	}
	return d.Learner.Layout(groups, d.Layout.Share, d.Layout.Pad)
}

// merge makes one part of those that have the same program.
func merge(parts []train.Part) (all []train.Part) {
	for _, p := range parts {
		i := slices.IndexFunc(all, func(q train.Part) bool {
			return train.Larger(p, q) == 0 && (p.Examples == nil) == (q.Examples == nil)
		})
		if i < 0 {
			all = append(all, p)
			continue
		}
		all[i].Count += p.Count
		all[i].Tokens += p.Tokens
	}
	slices.SortStableFunc(all, func(a, b train.Part) int {
		return cmp.Or(cmp.Compare(btoi(a.Examples == nil), btoi(b.Examples == nil)), train.Larger(a, b))
	})
	return all
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// sketched is the most programs of a kind that are counted, the largest first; the others take their share of tokens.
const sketched = 12

// sketch counts the programs.
func (p *Plan) sketch(d *recipe.Draft, parts []train.Part) error {
	counted := map[bool]int{}
	for _, part := range parts {
		s := Shape{Rows: part.Packed.Rows, Len: part.Packed.Len, Slots: part.Packed.Slots, Batches: part.Count,
			Trains: part.Examples != nil}
		if counted[s.Trains]++; counted[s.Trains] > sketched {
			last := p.Shapes[len(p.Shapes)-1]
			share := float64(s.Rows*s.Len) / float64(last.Rows*last.Len)
			s.Bytes, s.Flops = int(float64(last.Bytes)*share), last.Flops*share
		} else {
			k, err := d.Learner.Sketch(part, d.Loop.Train.Method)
			if err != nil {
				return err
			}
			s.Bytes, s.Flops = d.Engine.ProgramBytes(k), k.Flops
		}
		p.Shapes = append(p.Shapes, s)
	}
	return nil
}
