package batch

import (
	"fmt"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/tokenizer"
)

// Encoder turns records into groups with one tokenizer.
//
// The boundary between prompt and completion is decided here, once: the whole text is tokenised, and its tokens after
// the prompt's own are the completion. Where the prompt's tokens are no prefix of the whole text's (a merge crosses
// the boundary), prompt and completion are tokenised apart, as they are when a model is sampled; Drift counts these.
type Encoder struct {
	Tokenizer *tokenizer.Tokenizer
	Drift     int
}

// Preference encodes a pair: answer 0 is the chosen one, answer 1 the rejected.
func (e *Encoder) Preference(p data.Preference) (Group, error) {
	return e.group(p.Source, p.Prompt, p.Chosen, p.Rejected)
}

// Demonstration encodes a prompt with its completion. With all, every token but the first is a target; otherwise the
// completion's alone. A record without a prompt (plain text) is all completion.
func (e *Encoder) Demonstration(d data.Demonstration, all bool) (Group, error) {
	if d.Prompt.Empty() && d.Completion.Messages == nil {
		return e.plainText(d)
	}
	g, err := e.group(d.Source, d.Prompt, d.Completion)
	if err != nil || !all {
		return g, err
	}
	return wholeText(slices.Concat(g.Prompt, g.Answers[0])), nil
}

// plainText encodes a text without a prompt, ended by EOS.
func (e *Encoder) plainText(d data.Demonstration) (Group, error) {
	ids, err := e.encodeStart(d.Completion.Plain)
	if err != nil {
		return Group{}, fmt.Errorf("%s: %w", d.Source, err)
	}
	ids = e.withEOS(ids)
	if len(ids) < 2 {
		return Group{}, fmt.Errorf("%s: text of %d tokens has nothing to predict: want at least 2", d.Source, len(ids))
	}
	return wholeText(ids), nil
}

// wholeText makes the first token the prompt and the rest the answer.
func wholeText(ids []int32) Group { return Group{Prompt: ids[:1:1], Answers: [][]int32{ids[1:]}} }

// Prompt encodes a prompt alone, as it is before an answer is sampled.
func (e *Encoder) Prompt(t data.Text) ([]int32, error) {
	if t.Messages == nil {
		return e.encodeStart(t.Plain)
	}
	text, err := e.render(t.Messages, true)
	if err != nil {
		return nil, err
	}
	return e.Tokenizer.Encode(text, false)
}

func (e *Encoder) group(source string, prompt data.Text, answers ...data.Text) (Group, error) {
	ids, err := e.Prompt(prompt)
	if err != nil {
		return Group{}, fmt.Errorf("%s: %w", source, err)
	}
	if len(ids) == 0 {
		return Group{}, fmt.Errorf("%s: the prompt has no tokens: want at least one", source)
	}
	g := Group{Prompt: ids}
	for _, a := range answers {
		tokens, err := e.answer(prompt, ids, a)
		if err != nil {
			return Group{}, fmt.Errorf("%s: %w", source, err)
		}
		g.Answers = append(g.Answers, tokens)
	}
	return g, nil
}

// answer encodes one completion after its prompt, whose tokens are ids.
func (e *Encoder) answer(prompt data.Text, ids []int32, a data.Text) ([]int32, error) {
	if prompt.Messages == nil && a.Messages == nil {
		full, err := e.encodeStart(prompt.Plain + a.Plain)
		if err != nil {
			return nil, err
		}
		tokens, err := e.after(ids, full, a.Plain)
		return e.withEOS(tokens), err
	}
	if prompt.Messages == nil || a.Messages == nil {
		return nil, fmt.Errorf("the prompt and the completion must both be text or both be messages")
	}
	head, err := e.render(prompt.Messages, true)
	if err != nil {
		return nil, err
	}
	tail, err := e.turn(prompt.Messages, head, a.Messages)
	if err != nil {
		return nil, err
	}
	full, err := e.Tokenizer.Encode(head+tail, false)
	if err != nil {
		return nil, err
	}
	return e.after(ids, full, tail)
}

// encodeStart gives the tokens of plain text with what the tokenizer puts before a text (BOS), but without what some
// tokenizers put behind it (EOS): the text continues.
func (e *Encoder) encodeStart(text string) ([]int32, error) {
	ids, err := e.Tokenizer.Encode(text, true)
	if err != nil {
		return nil, err
	}
	bare, err := e.Tokenizer.Encode(text, false)
	if err != nil {
		return nil, err
	}
	for lead := 0; lead+len(bare) <= len(ids); lead++ {
		if slices.Equal(ids[lead:lead+len(bare)], bare) {
			return ids[:lead+len(bare)], nil
		}
	}
	return ids, nil
}

// after gives the tokens of tail behind a prompt with tokens ids, where full are the tokens of the whole text.
func (e *Encoder) after(ids, full []int32, tail string) ([]int32, error) {
	if len(full) >= len(ids) && slices.Equal(full[:len(ids)], ids) {
		return full[len(ids):], nil
	}
	e.Drift++
	return e.Tokenizer.Encode(tail, false)
}

// turn gives the text that the template writes behind the prompt for these messages. Templates that rewrite an answer
// (strip its think block, say) would train another text than the data's: then the content is set in by hand between
// what the template puts before and after an answer.
func (e *Encoder) turn(prompt []data.Message, head string, answer []data.Message) (string, error) {
	full, err := e.render(slices.Concat(prompt, answer), false)
	if err != nil {
		return "", err
	}
	tail, ok := strings.CutPrefix(full, head)
	content := answer[len(answer)-1].Content
	if ok && strings.Contains(tail, strings.TrimSpace(content)) {
		return tail, nil
	}
	if len(answer) != 1 {
		return "", fmt.Errorf("the chat template rewrites the prompt when the answer of %d messages follows it",
			len(answer))
	}
	end, err := e.endText(prompt, answer[0].Role)
	return content + end, err
}

// endText is what the template puts behind the content of an answer, seen with a word that no template rewrites.
func (e *Encoder) endText(prompt []data.Message, role string) (string, error) {
	const probe = "posttrain-probe"
	full, err := e.render(append(slices.Clone(prompt), data.Message{Role: role, Content: probe}), false)
	if err != nil {
		return "", err
	}
	i := strings.LastIndex(full, probe)
	if i < 0 {
		return "", fmt.Errorf("the chat template drops the content of a %q message", role)
	}
	return full[i+len(probe):], nil
}

func (e *Encoder) render(msgs []data.Message, generate bool) (string, error) {
	if !e.Tokenizer.HasTemplate() {
		_, err := e.Tokenizer.Render(nil, tokenizer.RenderOptions{}) // names the folder and the files
		return "", fmt.Errorf("the row is a conversation, for which the model must have a chat template (plain "+
			"text needs none); %w", err)
	}
	ms := make([]tokenizer.Message, len(msgs))
	for i, m := range msgs {
		ms[i] = tokenizer.Message(m)
	}
	return e.Tokenizer.Render(ms, tokenizer.RenderOptions{AddGenerationPrompt: generate})
}

// withEOS ends a plain-text completion; conversations end as their template ends them.
func (e *Encoder) withEOS(ids []int32) []int32 {
	eos, ok := e.Tokenizer.EOS()
	if !ok || len(ids) > 0 && ids[len(ids)-1] == eos {
		return ids
	}
	return append(ids, eos)
}
