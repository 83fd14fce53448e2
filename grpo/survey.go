package grpo

import (
	"slices"

	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/train"
)

// Survey counts the batches of the run's updates, if every answer has a given number of tokens, by those of one step.
// The learner may have shapes alone. What the reference and the old policy measure is counted, too.
func (l *Loop) Survey(s *train.Survey, tokens int) {
	groups, t, steps := l.supposed(tokens), l.Trainer(), float64(l.Total())
	plain := make([]batch.Group, len(groups))
	for i, g := range groups {
		plain[i] = g.Group
	}
	for part := range slices.Chunk(groups, l.Options.Prompts/l.Options.Updates) {
		b := newMinibatch(l.Options, part)
		training, _ := b.training()
		for _, p := range t.spread(training) {
			s.Add(train.Part{Packed: p.Packed, Objective: b.objective, Inputs: b.inputs(p), Count: steps})
		}
	}
	for _, measures := range []bool{l.Options.NeedsReference(), l.Options.NeedsOld()} {
		if !measures {
			continue
		}
		for _, p := range t.spread(plain) {
			s.Add(train.Part{Packed: p.Packed, Count: steps})
		}
	}
}

// supposed are groups of a step whose answers have that number of tokens, or what the model has positions for: to
// prompts evenly from the shortest to the longest.
func (l *Loop) supposed(tokens int) []Group {
	order := train.Order(len(l.Tasks), 0, 0, false)
	slices.SortStableFunc(order, func(a, b int) int { return len(l.Tasks[a].Tokens) - len(l.Tasks[b].Tokens) })
	groups, positions := make([]Group, l.Options.Prompts), l.Learner.Config().MaxPositions
	for i := range groups {
		prompt := l.Tasks[order[(i+1)*len(order)/len(groups)-1]].Tokens
		n := max(1, min(tokens, positions-len(prompt)))
		g := Group{Group: batch.Group{Prompt: prompt}}
		for a := range l.Options.GroupSize {
			g.Answers = append(g.Answers, make([]int32, n))
			g.Advantages = append(g.Advantages, float64(1-2*(a%2)))
			zeros := make([]float32, n)
			if l.Options.NeedsReference() {
				g.Reference = append(g.Reference, zeros)
			}
			if l.Options.NeedsOld() {
				g.Old = append(g.Old, zeros)
			}
		}
		groups[i] = g
	}
	return groups
}
