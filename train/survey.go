package train

import (
	"slices"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/batch"
)

// Part counts the batches of one shape that go through the model in a run.
type Part struct {
	Packed    *batch.Packed // one of them
	Objective Objective     // that its gradient is of; nil: its log-probs are measured
	Inputs    []Input       // of the objective
	Count     float64       // in the whole run
	Tokens    float64       // of all of them, without padding
}

// Survey gathers the batches of a run by their shapes, in the order in which they come first. The zero value is empty.
type Survey struct{ Parts []Part }

// Add counts a batch. The part of other batches of its shape stays as it is.
func (s *Survey) Add(p Part) {
	p.Tokens = p.Count * float64(p.Packed.Count)
	for i, q := range s.Parts {
		if shapeKey(p.Packed) == shapeKey(q.Packed) && (p.Objective == nil) == (q.Objective == nil) {
			s.Parts[i].Count += p.Count
			s.Parts[i].Tokens += p.Tokens
			return
		}
	}
	s.Parts = append(s.Parts, p)
}

// Measure counts the batches in which groups are measured, times over.
func (s *Survey) Measure(groups []batch.Group, layout batch.Layout, times int) {
	s.measure(groups, Order(len(groups), 0, 0, false), layout, float64(times))
}

// measure counts the batches in which the groups of some examples are measured.
func (s *Survey) measure(groups []batch.Group, examples []int, layout batch.Layout, count float64) {
	for p := range pieces(groups, examples, layout) {
		s.Add(Part{Packed: p.Packed, Count: count})
	}
}

// surveyed is the most steps that a survey looks at; those of a longer run are counted by these.
const surveyed = 200

// Survey counts the batches of the steps and of the evaluations. The learner may have shapes alone.
func (l *Loop) Survey(s *Survey) error {
	state, steps := l.State, l.Total()
	defer func() { l.State = state }()
	look := min(steps, surveyed)
	count := float64(steps) / float64(look)
	for i := range look {
		examples, err := l.Seek(i)
		if err != nil {
			return err
		}
		m := l.Train.Method
		for p := range pieces(l.Train.Groups, examples, l.Layout()) {
			s.Add(Part{Packed: p.Packed, Objective: m, Inputs: m.Inputs(p.examples, p.Packed), Count: count})
		}
		if m, ok := m.(preparer); ok {
			s.measure(m.others(), examples, l.Layout(), count)
		}
	}
	if l.Eval != nil {
		s.evaluate(l, l.Options.Evaluations(steps))
	}
	return nil
}

// evaluate counts the batches of evaluations.
func (s *Survey) evaluate(l *Loop, times int) {
	s.Measure(l.Eval.Groups, l.Layout(), times)
	if m, ok := l.Eval.Method.(preparer); ok {
		s.Measure(m.others(), l.Layout(), times)
	}
}

// Evaluations is how often a run of that length evaluates: ahead of the first step, every EvalEvery and at the end.
func (o Options) Evaluations(steps int) int {
	n := 2
	if o.EvalEvery > 0 {
		n += (steps - 1) / o.EvalEvery
	}
	return n
}

// Sketch counts the program of a part.
func (l *Learner) Sketch(p Part) (backend.Sketch, error) {
	if p.Objective == nil {
		return l.SketchForward(p.Packed)
	}
	return l.SketchGradient(p.Packed, p.Objective, p.Inputs)
}

// Larger orders parts by the size of their programs, the largest first.
func Larger(a, b Part) int {
	size := func(p Part) []int { return []int{p.Packed.Rows * p.Packed.Len, p.Packed.Len, p.Packed.Slots} }
	return slices.Compare(size(b), size(a))
}
