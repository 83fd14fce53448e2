package train

import (
	"slices"

	"github.com/posttrain/posttrain/backend"
	"github.com/posttrain/posttrain/batch"
)

// Part counts the batches of one shape that go through the model in a run.
type Part struct {
	Packed   *batch.Packed // one of them
	Examples []int         // of it; nil: it is measured, not trained on
	Count    float64       // in the whole run
	Tokens   float64       // of all of them, without padding
}

// survey gathers parts by their shape, in the order in which they come first.
type survey struct {
	parts []Part
	at    map[string]int
}

func (s *survey) add(p piece, train bool, count float64) {
	key := shapeKey(p.Packed)
	i, known := s.at[key]
	if !known {
		i, s.at[key] = len(s.parts), len(s.parts)
		s.parts = append(s.parts, Part{Packed: p.Packed})
		if train {
			s.parts[i].Examples = p.examples
		}
	}
	s.parts[i].Count += count
	s.parts[i].Tokens += count * float64(p.Packed.Count)
}

// surveyed is the most steps that Survey looks at; those of a longer run are counted by these.
const surveyed = 200

// Survey says in which shapes the run's examples are trained on, and steps is how many it has. The learner may have
// shapes alone.
func (l *Loop) Survey() (parts []Part, steps int, err error) {
	s, state := survey{at: map[string]int{}}, l.State
	defer func() { l.State = state }()
	steps = l.Total()
	look := min(steps, surveyed)
	for i := range look {
		examples, err := l.Seek(i)
		if err != nil {
			return nil, 0, err
		}
		for p := range pieces(l.Train.Groups, examples, l.Layout()) {
			s.add(p, true, float64(steps)/float64(look))
		}
	}
	return s.parts, steps, nil
}

// Evaluations is how often the run measures its evaluation split: ahead of the first step, every so often and at the
// end.
func (o Options) Evaluations(steps int) int {
	n := 2
	if o.EvalEvery > 0 {
		n += (steps - 1) / o.EvalEvery
	}
	return n
}

// SurveyForward says in which shapes groups are measured, times over.
func SurveyForward(groups []batch.Group, layout batch.Layout, times int) []Part {
	s := survey{at: map[string]int{}}
	for p := range pieces(groups, Order(len(groups), 0, 0, false), layout) {
		s.add(p, false, float64(times))
	}
	return s.parts
}

// Sketch counts the program of a part.
func (l *Learner) Sketch(p Part, m Method) (backend.Sketch, error) {
	if p.Examples == nil {
		return l.SketchForward(p.Packed)
	}
	return l.SketchGradient(p.Packed, m, m.Inputs(p.Examples, p.Packed))
}

// Larger orders parts by the size of their programs, the largest first.
func Larger(a, b Part) int {
	size := func(p Part) int { return p.Packed.Rows * p.Packed.Len }
	return slices.Compare([]int{size(b), b.Packed.Len, b.Packed.Slots}, []int{size(a), a.Packed.Len, a.Packed.Slots})
}
