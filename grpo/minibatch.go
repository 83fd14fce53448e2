package grpo

import (
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/train"
)

// minibatch is what an update knows of its groups' answers, which are numbered group by group.
type minibatch struct {
	objective
	groups  []Group
	first   []int     // [groups] number of the group's first answer
	weights []float64 // [answers] of a token; 0: does not train
	numbers Batch     // Logps are filled in as they are measured
}

func newMinibatch(o Options, groups []Group) *minibatch {
	m := &minibatch{objective: objective{o, len(groups) > 0 && groups[0].Old != nil}, groups: groups}
	var lens []int
	for _, g := range groups {
		m.first = append(m.first, len(lens))
		for a := range g.Answers {
			lens = append(lens, g.Predicted(a))
		}
		m.numbers.Advantages = append(m.numbers.Advantages, g.Advantages...)
		m.numbers.Masked = append(m.numbers.Masked, masks(g)...)
		if m.old {
			m.numbers.Old = append(m.numbers.Old, wide(g.Old)...)
		}
		if o.NeedsReference() {
			m.numbers.Reference = append(m.numbers.Reference, wide(g.Reference)...)
		}
	}
	if o.ImportanceCap > 0 {
		m.numbers.Importance = importance(o, groups)
	}
	m.weights = o.weights(lens, m.numbers.Masked)
	m.numbers.Logps = make([][]float64, len(lens))
	return m
}

// importance are the factors of all answers' tokens: 1 where the sampler gave no log-probs.
func importance(o Options, groups []Group) (factors [][]float64) {
	for _, g := range groups {
		for a, old := range g.Old {
			sampled := old
			if g.Sampled != nil {
				sampled = g.Sampled[a]
			}
			factors = append(factors, o.importance(old, sampled))
		}
	}
	return factors
}

func masks(g Group) []bool {
	if g.Masked == nil {
		return make([]bool, len(g.Answers))
	}
	return g.Masked
}

func wide(rows [][]float32) [][]float64 {
	out := make([][]float64, len(rows))
	for i, row := range rows {
		out[i] = make([]float64, len(row))
		for t, x := range row {
			out[i][t] = float64(x)
		}
	}
	return out
}

// training are the groups whose answers have a gradient, and idle the groups whose log-probs alone are of interest:
// with equal rewards and no KL. Answers that do not train are left empty.
func (m *minibatch) training() (training, idle []batch.Group) {
	training, idle = make([]batch.Group, len(m.groups)), make([]batch.Group, len(m.groups))
	for i, g := range m.groups {
		answers, still := make([][]int32, len(g.Answers)), !m.inLoss()
		for a := range answers {
			if m.weights[m.first[i]+a] != 0 {
				answers[a], still = g.Answers[a], still && g.Advantages[a] == 0
			}
		}
		to, other := &training[i], &idle[i]
		if still {
			to, other = other, to
		}
		*to = batch.Group{Prompt: g.Prompt, Answers: answers, Trained: g.Trained}
		*other = batch.Group{Prompt: g.Prompt}
	}
	return training, idle
}

// inputs are the objective's own for a part, in the order of Loss. Padding slots are 0 throughout: weight and share
// above all.
func (m *minibatch) inputs(p batch.GroupMicrobatch) []train.Input {
	var in []train.Input
	column := func(given bool) []float32 {
		if !given {
			return nil
		}
		in = append(in, train.Input{Data: make([]float32, p.Slots), Dims: []int{p.Slots}})
		return in[len(in)-1].Data
	}
	weight, advantage := column(true), column(true)
	reference, old := column(m.inLoss()), column(m.old)
	number, share := column(m.sequence()), column(m.sequence())
	eachSlot(p, func(slot, packed, group, answer, token int) {
		i := m.first[group] + answer
		weight[slot], advantage[slot] = float32(m.weights[i]), float32(m.numbers.advantage(i, token))
		if reference != nil {
			reference[slot] = m.groups[group].Reference[answer][token]
		}
		if old != nil {
			old[slot] = m.groups[group].Old[answer][token]
		}
		if share != nil {
			number[slot], share[slot] = float32(packed), 1/float32(p.Lengths[packed])
		}
	})
	return in
}

// keep takes the log-probs [slots] of a part.
func (m *minibatch) keep(p batch.GroupMicrobatch, logps []float32) {
	eachSlot(p, func(slot, _, group, answer, _ int) {
		row := &m.numbers.Logps[m.first[group]+answer]
		*row = append(*row, float64(logps[slot]))
	})
}

// eachSlot goes through the slots that are no padding: slot, the packed answer's number, group, answer, token. An
// answer's slots are in order.
func eachSlot(p batch.GroupMicrobatch, f func(slot, packed, group, answer, token int)) {
	var group, answer []int
	for _, s := range p.Sets {
		for _, a := range s.Answers {
			group, answer = append(group, s.Group), append(answer, a)
		}
	}
	next := make([]int, len(group)) // token of every packed answer
	for slot, packed := range p.Answer {
		if packed >= 0 {
			f(slot, int(packed), group[packed], answer[packed], next[packed])
			next[packed]++
		}
	}
}
