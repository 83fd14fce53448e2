package train

import (
	"slices"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/batch"
)

// ShapeCount counts the batches of one shape that go through the model in a run.
type ShapeCount struct {
	Packed    *batch.Packed // one of them
	Objective Objective     // that its gradient is of; nil: its log-probs are measured
	Inputs    []Input       // of the objective
	Count     float64       // in the whole run
	Tokens    float64       // of all of them, without padding
}

// Survey gathers the batches of a run by their shapes, in the order in which they come first. The zero value is empty.
type Survey struct{ Shapes []ShapeCount }

// Add counts a batch. Of the batches of a shape the first is kept.
func (s *Survey) Add(c ShapeCount) {
	c.Tokens = c.Count * float64(c.Packed.Count)
	for i, old := range s.Shapes {
		if shapeKey(c.Packed) == shapeKey(old.Packed) && (c.Objective == nil) == (old.Objective == nil) {
			s.Shapes[i].Count += c.Count
			s.Shapes[i].Tokens += c.Tokens
			return
		}
	}
	s.Shapes = append(s.Shapes, c)
}

// Measure counts the batches in which groups are measured, times over.
func (s *Survey) Measure(groups []Group, layout batch.Layout, times float64) {
	for _, p := range splitGroups(groups, layout) {
		s.Add(ShapeCount{Packed: p, Count: times})
	}
}

// surveyed is the most steps that a survey looks at. A longer run's steps are counted by these.
const surveyed = 200

// Survey counts the batches of the steps and of the evaluations. The learner may be weightless.
func (d *Dataset) Survey(s *Survey) error {
	if err := d.Start(d.t); err != nil {
		return err
	}
	state, steps := d.t.State, d.Total()
	defer func() { d.t.State = state }()
	look := min(steps, surveyed)
	count := float64(steps) / float64(look)
	method, measures := d.Method.(preparer)
	for i := range look {
		examples := data.Pick(d.Train, d.Seek(i))
		for p := range split(examples, d.Layout()) {
			s.Add(ShapeCount{Packed: p.Packed, Objective: d.Method, Inputs: d.Method.Inputs(p.examples, p.Packed),
				Count: count})
		}
		if measures {
			s.Measure(method.others(examples), d.Layout(), count)
		}
	}
	if d.Eval != nil {
		times := float64(d.t.Options.Evaluations(steps))
		s.Measure(Groups(d.Eval), d.Layout(), times)
		if measures {
			s.Measure(method.others(d.Eval), d.Layout(), times)
		}
	}
	return nil
}

// Evaluations is how often a run of that length evaluates: ahead of the first step, every EvalEvery and at the end.
func (o Options) Evaluations(steps int) int {
	n := 2
	if o.EvalEvery > 0 {
		n += (steps - 1) / o.EvalEvery
	}
	return n
}

// Sketch counts the program of a shape.
func (l *Learner) Sketch(p ShapeCount) (backend.Sketch, error) {
	if p.Objective == nil {
		return l.engine.Sketch("logps/"+shapeKey(p.Packed), func(g *graph.Graph) []*graph.Node {
			return []*graph.Node{l.declare(g, p.Packed).logProbs(l, p.Packed).Sums}
		})
	}
	return l.engine.Sketch("gradient/"+p.Objective.Key()+"/"+shapeKey(p.Packed), func(g *graph.Graph) []*graph.Node {
		return l.gradient(g, p.Packed, p.Objective, p.Inputs, !l.engine.Wants.SharedMemory)
	})
}

// Recomputing is a learner to sketch with, whose layers are computed again in the backward pass.
func (l *Learner) Recomputing() *Learner {
	other := *l
	other.graph.Checkpoint = true
	return &other
}

// Larger orders shapes by the size of their programs, the largest first.
func Larger(a, b ShapeCount) int {
	size := func(p ShapeCount) []int { return []int{p.Packed.Rows * p.Packed.Len, p.Packed.Len, p.Packed.Slots} }
	return slices.Compare(size(b), size(a))
}
