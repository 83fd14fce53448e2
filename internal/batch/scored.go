package batch

import (
	"errors"
	"fmt"
	"slices"

	"github.com/posttrain/posttrain/data"
)

// Scored encodes answers to a prompt for a reward model, which scores each whole text: a conversation as the chat
// template writes it, plain text with EOS behind it. What the texts have in common is the group's prompt, so that rows
// can share it. Behind each text the group has one token more, which no model reads: the position before it has the
// score. That is the last token that is not pad (nil: any), as in transformers.
func (e *Encoder) Scored(source string, pad *int, prompt data.Text, answers ...data.Text) (Group, error) {
	prompt, answers = e.converse(prompt, answers...)
	texts := make([][]int32, len(answers))
	for i, a := range answers {
		ids, err := e.whole(prompt, a)
		if err == nil && len(ids) == 0 {
			err = errors.New("the text has no tokens: want at least one")
		}
		if err != nil {
			return Group{}, fmt.Errorf("%s: %w", source, err)
		}
		texts[i] = withoutPadding(ids, pad)
		if i > 0 && slices.Equal(texts[i], texts[0]) && !a.Equal(answers[0]) {
			return Group{}, fmt.Errorf("%s: the chat template writes the same for two answers that differ: it drops "+
				"their thoughts, or other parts; want answers that differ in the rest", source)
		}
	}
	n := commonPrefix(texts)
	g := Group{Prompt: texts[0][:n:n]}
	for _, ids := range texts {
		g.Answers = append(g.Answers, append(slices.Clone(ids[n:]), ids[0]))
	}
	return g, nil
}

// whole encodes a prompt with its answer.
func (e *Encoder) whole(prompt, answer data.Text) ([]int32, error) {
	if err := sameForm(prompt, answer); err != nil {
		return nil, err
	}
	if !answer.IsChat() {
		ids, err := e.encodeStart(prompt.Plain + answer.Plain)
		return e.withEOS(ids), err
	}
	text, err := e.Render(slices.Concat(prompt.Messages, answer.Messages), false)
	if err != nil {
		return nil, err
	}
	return e.Tokenizer.Encode(text, false)
}

// withoutPadding cuts pad ids off the end. The first token stays.
func withoutPadding(ids []int32, pad *int) []int32 {
	for n := len(ids) - 1; pad != nil && n > 0 && int(ids[n]) == *pad; n-- {
		ids = ids[:n]
	}
	return ids
}

// commonPrefix is the number of tokens that all texts begin with, at least 1.
func commonPrefix(texts [][]int32) int {
	n := len(texts[0])
	for _, t := range texts[1:] {
		n = min(n, len(t))
		for i := range n {
			if t[i] != texts[0][i] {
				n = i
				break
			}
		}
	}
	return max(1, n)
}

// ScoredTokens is the number of tokens of the longest text of a group that Scored made.
func (g Group) ScoredTokens() int { return g.longest(false) }
