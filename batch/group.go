package batch

// Group is one prompt and the answers to it, as token ids. The prompt has at least one token: the first token of an
// answer is predicted from the prompt's last.
type Group struct {
	Prompt  []int32
	Answers [][]int32
}

// AnswerTokens counts the tokens of all answers: the predicted ones.
func (g Group) AnswerTokens() int {
	n := 0
	for _, a := range g.Answers {
		n += len(a)
	}
	return n
}

// units are the stretches of a group that must stand in one row, and their lengths in tokens.
func (g Group) units(share bool) []int {
	if share {
		return []int{g.sharedLen()}
	}
	lens := make([]int, len(g.Answers))
	for i, a := range g.Answers {
		lens[i] = len(g.Prompt) + len(a) - 1
	}
	return lens
}

// sharedLen is the length of the group in one row. Every answer brings its own copy of the prompt's last token, and
// the last token of an answer predicts nothing, so it is not fed.
func (g Group) sharedLen() int {
	n := len(g.Prompt) - 1
	for _, a := range g.Answers {
		n += len(a)
	}
	return n
}
