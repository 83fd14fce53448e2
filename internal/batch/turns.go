package batch

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/data"
)

// span is a stretch of a conversation as the chat template writes it.
type span struct {
	text    string
	trained bool
}

// turns encodes a conversation with a loss on some messages of its completion. The model reads all in one row, so each
// trained message must be there as the template writes it when it is the last: a template that rewrites earlier
// messages (drops their thoughts, say) is an error.
func (e *Encoder) turns(d data.Demonstration) (Group, error) {
	spans, err := e.spans(d)
	if err != nil {
		return Group{}, fmt.Errorf("%s: %w", d.Source, err)
	}
	ids, err := e.encodeSpans(spans)
	if err != nil {
		return Group{}, fmt.Errorf("%s: %w", d.Source, err)
	}
	g := Group{Prompt: ids[0], Answers: [][]int32{nil}, Trained: [][]bool{nil}}
	for i, s := range spans[1:] {
		g.Answers[0] = append(g.Answers[0], ids[i+1]...)
		g.Trained[0] = append(g.Trained[0], slices.Repeat([]bool{s.trained}, len(ids[i+1]))...)
	}
	return g, nil
}

// spans cuts the text of a conversation, which ends with the last trained message: the prompt first, then the trained
// messages and what is between them.
func (e *Encoder) spans(d data.Demonstration) (spans []span, err error) {
	completion := d.Completion.Messages
	for len(completion) > 0 && completion[len(completion)-1].Untrained {
		completion = completion[:len(completion)-1]
	}
	if len(completion) == 0 {
		return nil, errors.New(`the message to train on has "train": false`)
	}
	msgs, at := slices.Concat(d.Prompt.Messages, completion), 0
	whole, err := e.Render(msgs, false)
	if err == nil {
		err = checkCalls(whole, d.Prompt.Messages)
	}
	for i := len(d.Prompt.Messages); i < len(msgs) && err == nil; i++ {
		if msgs[i].Untrained {
			continue
		}
		var p position
		if p, err = e.find(whole, msgs, i); err == nil {
			spans = append(spans, span{whole[at:p.from] + p.lead, false}, span{p.text, true})
			at = p.to
		}
	}
	return spans, err
}

// position is where what a model writes, text, belongs in the text of a conversation; lead is what is missing before
// it.
type position struct {
	from, to   int
	lead, text string
}

// find gives the position in the text of a conversation of what a model writes as message i. It is there as the
// template writes it when it is the last, but for an end-of-text token behind the last turn, and for an empty thought,
// which Qwen3's template writes in the last turn alone. The row has the thought in each turn, as with TRL's template.
func (e *Encoder) find(whole string, msgs []data.Message, i int) (p position, err error) {
	before, err := e.Render(msgs[:i], true)
	if err != nil {
		return p, err
	}
	through, err := e.Render(msgs[:i+1], false)
	if err != nil {
		return p, err
	}
	answer, ok := strings.CutPrefix(through, before)
	lead := thought(before)
	base := strings.TrimSuffix(before, lead)
	for _, end := range e.lastTokens(answer) {
		if !ok || !strings.HasSuffix(whole, end) || !holds(lead+answer, msgs[i]) {
			continue
		}
		text := strings.TrimSuffix(answer, end)
		if end != "" && strings.HasSuffix(text, strings.TrimSpace(msgs[i].Content)) {
			continue // the turn would have no end
		}
		bare := emptyThought.start.ReplaceAllString(lead+text, "")
		switch {
		case strings.HasPrefix(whole, before+text):
			return position{len(before), len(before) + len(text), "", text}, checkThought(before, text)
		case strings.HasPrefix(whole, base+bare):
			return position{len(base), len(base) + len(bare), lead, text}, checkThought(before, text)
		}
	}
	if ok && !writesCalls(answer, msgs[i]) {
		return p, callsError(i)
	}
	if !ok {
		if err := e.opensOther(msgs[:i], msgs[i].Role, before); err != nil {
			return p, err
		}
	}
	return p, fmt.Errorf("the chat template rewrites messages[%d] where more messages follow, so that it "+
		"cannot be trained in one row with them: want data.loss_on last, or a row for each of the assistant's "+
		"turns", i)
}

// opensOther is the error of [start.opensOther] for a message behind others; before is what the template writes of these.
func (e *Encoder) opensOther(prompt []data.Message, role, before string) error {
	s := start{Encoder: e, prompt: data.Text{Messages: prompt}, text: before}
	f, err := s.frame(role)
	if err != nil {
		return err
	}
	if err := s.opensOther(f); err != nil || strings.HasPrefix(f.before, before) {
		return err
	}
	return checkThought(before, "")
}

// lastTokens are nothing, and the last token of a text: some templates write an end-of-text token behind the last turn.
func (e *Encoder) lastTokens(text string) []string {
	ids, err := e.Tokenizer.Encode(text, false)
	if err != nil || len(ids) == 0 {
		return []string{""}
	}
	last := e.Tokenizer.Decode(ids[len(ids)-1:], false)
	if !e.Tokenizer.Special(ids[len(ids)-1]) || !strings.HasSuffix(text, last) {
		return []string{""}
	}
	return []string{"", last}
}

// encodeSpans gives the tokens of each span. Together they are the whole text's, unless a token crosses the end of a
// span: then the spans are tokenised apart, or where that would change the text, such a token belongs to the next span.
func (e *Encoder) encodeSpans(spans []span) (ids [][]int32, err error) {
	text, done := "", 0
	for _, s := range spans {
		text += s.text
	}
	full, err := e.Tokenizer.Encode(text, false)
	for end := 0; err == nil && len(ids) < len(spans); {
		end += len(spans[len(ids)].text)
		var part []int32
		if part, err = e.Tokenizer.Encode(text[:end], false); err != nil {
			break
		}
		if len(part) < done || len(part) > len(full) || !slices.Equal(part, full[:len(part)]) {
			return e.crossed(full, spans)
		}
		ids = append(ids, full[done:len(part):len(part)])
		done = len(part)
	}
	if err == nil && len(ids[0]) == 0 {
		err = errors.New("the prompt has no tokens: want at least one")
	}
	return ids, err
}

// crossed gives the tokens of spans where a token crosses the end of one.
func (e *Encoder) crossed(full []int32, spans []span) (ids [][]int32, err error) {
	var cut [][]int32
	text, done := "", 0
	for i, s := range spans {
		apart, err1 := e.Tokenizer.Encode(s.text, false)
		text += s.text
		through, err2 := e.Tokenizer.Encode(text, false)
		if err := cmp.Or(err1, err2); err != nil {
			return nil, err
		}
		end := max(done, shared(through, full))
		if i == len(spans)-1 {
			end = len(full)
		}
		ids, cut = append(ids, apart), append(cut, full[done:end:end])
		done = end
	}
	if e.changes(full, ids...) && len(cut[0]) > 0 {
		return cut, nil
	}
	e.Drift++
	return ids, nil
}
