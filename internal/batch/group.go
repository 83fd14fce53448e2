package batch

import "slices"

// Group is one prompt and the answers to it, as token ids. The prompt has at least one token: the first token of an
// answer is predicted from the prompt's last.
type Group struct {
	Prompt  []int32
	Answers [][]int32
	Trained [][]bool // of each answer the tokens that are predicted, its first one always; nil: all, as of an answer
}

// AnswerTokens counts the predicted tokens of all answers.
func (g Group) AnswerTokens() int {
	n := 0
	for a := range g.Answers {
		n += g.Predicted(a)
	}
	return n
}

// IsPredicted says whether token i of answer a is predicted; else it is only read.
func (g Group) IsPredicted(a, i int) bool {
	return g.Trained == nil || g.Trained[a] == nil || g.Trained[a][i]
}

// Predicted counts the predicted tokens of answer a.
func (g Group) Predicted(a int) int {
	n := 0
	for i := range g.Answers[a] {
		if g.IsPredicted(a, i) {
			n++
		}
	}
	return n
}

// units are the stretches of a group that must stand in one row, and their lengths in tokens.
func (g Group) units(share bool) []int {
	if share {
		return []int{g.sharedLen()}
	}
	lens := make([]int, len(g.Answers))
	for a := range lens {
		lens[a] = g.with(a)
	}
	return lens
}

// longest is the longest of the units.
func (g Group) longest(share bool) int { return slices.Max(g.units(share)) }

// with is the length of the prompt and answer a alone in a row.
func (g Group) with(a int) int { return len(g.Prompt) - 1 + len(g.Answers[a]) }

// sharedLen is the length of the group in one row. Every answer brings its own copy of the prompt's last token, and
// the last token of an answer predicts nothing, so it is not fed.
func (g Group) sharedLen() int {
	n := len(g.Prompt) - 1
	for _, a := range g.Answers {
		n += len(a)
	}
	return n
}

// slots are the predicted tokens of each unit.
func (g Group) slots(share bool) []int {
	if share {
		return []int{g.AnswerTokens()}
	}
	slots := make([]int, len(g.Answers))
	for a := range slots {
		slots[a] = g.Predicted(a)
	}
	return slots
}
