package batch

import (
	"errors"
	"fmt"
	"slices"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/tokenizer/jinja"
)

// marked encodes a conversation with a loss on what the chat template marks with {% generation %} of the messages that
// are trained, as the mask of transformers has it. The row ends with the last token that has a weight.
func (e *Encoder) marked(d data.Demonstration) (g Group, err error) {
	msgs := slices.Concat(d.Prompt.Messages, d.Completion.Messages)
	text, all, err := e.renderMarked(msgs, false)
	if err == nil {
		err = checkCalls(text, msgs)
	}
	var trained []jinja.Stretch
	if err == nil {
		trained, err = e.ofTrained(all, d, msgs)
	}
	for i, m := range d.Completion.Messages {
		switch {
		case err != nil || m.Untrained:
		case !holds(text, m):
			err = fmt.Errorf("the chat template does not write all of messages[%d], its content or its thoughts: want a "+
				"template that does", len(d.Prompt.Messages)+i)
		}
	}
	if err == nil && len(trained) == 0 {
		err = errors.New("the chat template marks nothing of the answer with {% generation %}: want data.loss_on " +
			"turns, or a template that marks it")
	}
	if err == nil {
		g, err = e.masked(text, trained)
	}
	if err != nil {
		return Group{}, fmt.Errorf("%s: %w", d.Source, err)
	}
	return g, nil
}

// ofTrained are the stretches that belong to messages of the completion that are trained. Stretches follow the messages:
// what the text of i+1 messages marks beyond the text of i is of message i.
func (e *Encoder) ofTrained(all []jinja.Stretch, d data.Demonstration, msgs []data.Message) (kept []jinja.Stretch, err error) {
	begin, before := len(d.Prompt.Messages), 0
	isAssistant := func(m data.Message) bool { return m.Role == "assistant" }
	if !slices.ContainsFunc(d.Prompt.Messages, isAssistant) && !slices.ContainsFunc(d.Completion.Messages,
		func(m data.Message) bool { return isAssistant(m) && m.Untrained }) {
		return all, nil
	}
	for i, m := range msgs {
		if !isAssistant(m) {
			continue
		}
		through := all
		if i < len(msgs)-1 {
			if _, through, err = e.renderMarked(msgs[:i+1], false); err != nil {
				return nil, err
			}
		}
		n := min(len(through), len(all))
		if i >= begin && !m.Untrained {
			kept = append(kept, all[min(before, n):n]...)
		}
		before = n
	}
	return kept, nil
}

// masked gives a text's tokens with a weight on each of a trained stretch: from the token with its first character to
// the token with its last.
func (e *Encoder) masked(text string, trained []jinja.Stretch) (g Group, err error) {
	ids, err := e.Tokenizer.Encode(text, false)
	weighs := make([]bool, len(ids))
	for _, s := range trained {
		var bounds [2]int
		for i, end := range []int{s.From, s.To} {
			part, err2 := e.Tokenizer.Encode(text[:end], false)
			if err == nil {
				err = err2
			}
			if bounds[i] = shared(part, ids); i == 1 && bounds[i] < len(part) {
				bounds[i]++ // a token crosses the end
			}
		}
		for k := bounds[0]; k < min(bounds[1], len(ids)); k++ {
			weighs[k] = true
		}
	}
	first, last := slices.Index(weighs, true), lastTrue(weighs)
	switch {
	case err != nil:
		return g, err
	case first == 0:
		return g, errors.New("the prompt has no tokens: want at least one")
	case first < 0:
		return g, errors.New("no token of the answer is marked with {% generation %}")
	}
	return Group{Prompt: ids[:first:first], Answers: [][]int32{ids[first : last+1]},
		Trained: [][]bool{weighs[first : last+1]}}, nil
}

func lastTrue(all []bool) int {
	for i := len(all) - 1; i >= 0; i-- {
		if all[i] {
			return i
		}
	}
	return -1
}
