package grpo

import (
	"slices"

	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/train"
)

// Survey counts the batches of the run's updates, if every answer is as long as the sampling allows, by the batches of
// one step. The learner may have shapes alone. What the reference and the old policy measure is counted, too.
func (rs *Rollouts) Survey(s *train.Survey) error {
	groups, t, steps := rs.supposed(rs.longest()), rs.Trainer(), float64(rs.Total())
	plain := make([]batch.Group, len(groups))
	for i, g := range groups {
		plain[i] = g.Group
	}
	for part := range slices.Chunk(groups, rs.Options.Prompts/rs.Options.Updates) {
		b := newMinibatch(rs.Options, part)
		training, _ := b.training()
		for _, p := range t.spread(training) {
			s.Add(train.ShapeCount{Packed: p.Packed, Objective: b.objective, Inputs: b.inputs(p), Count: steps})
		}
	}
	for _, measures := range []bool{rs.Options.NeedsReference(), rs.Options.NeedsOld()} {
		if !measures {
			continue
		}
		for _, p := range t.spread(plain) {
			s.Add(train.ShapeCount{Packed: p.Packed, Count: steps})
		}
	}
	return nil
}

// supposed are groups of a step whose answers have that number of tokens, or what the model has positions for: to
// prompts evenly from the shortest to the longest.
func (rs *Rollouts) supposed(tokens int) []Group {
	order := train.Order(len(rs.Tasks), 0, 0, false)
	slices.SortStableFunc(order, func(a, b int) int { return len(rs.Tasks[a].Tokens) - len(rs.Tasks[b].Tokens) })
	groups, positions := make([]Group, rs.Options.Prompts), rs.t.Learner.Config().MaxPositions
	for i := range groups {
		prompt := rs.Tasks[order[(i+1)*len(order)/len(groups)-1]].Tokens
		n := max(1, min(tokens, positions-len(prompt)))
		g := Group{Group: batch.Group{Prompt: prompt}}
		for a := range rs.Options.GroupSize {
			g.Answers = append(g.Answers, make([]int32, n))
			g.Advantages = append(g.Advantages, float64(1-2*(a%2)))
			zeros := make([]float32, n)
			if rs.Options.NeedsReference() {
				g.Reference = append(g.Reference, zeros)
			}
			if rs.Options.NeedsOld() {
				g.Old = append(g.Old, zeros)
			}
		}
		groups[i] = g
	}
	return groups
}
