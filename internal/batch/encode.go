package batch

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/tokenizer"
	"github.com/posttrain/posttrain/tokenizer/jinja"
)

// Encoder turns records into groups with one tokenizer.
//
// The boundary between prompt and completion is decided here, once: the whole text is tokenised, and its tokens after
// the prompt's own are the completion. Where the prompt's tokens are no prefix of the whole text's (a merge crosses
// the boundary), prompt and completion are tokenised apart, as they are when a model is sampled; Drift counts these. Where
// that would change the text, the prompt ends before the token that crosses the boundary.
type Encoder struct {
	Tokenizer *tokenizer.Tokenizer
	Drift     int
	Converse  bool // plain prompts and their answers go through the chat template, see [data.Converse]
	Plain     int  // plain prompts so far
	Marked    int  // demonstrations so far of which the chat template marks what is trained
	Ended     bool // a plain text was ended

	glued     glue
	Variables map[string]any // of the chat template, beside the tokenizer's
}

// converse gives a plain prompt and its answers the form that Converse asks for, and counts them.
func (e *Encoder) converse(prompt data.Text, answers ...data.Text) (data.Text, []data.Text) {
	if prompt.IsChat() || prompt.Empty() {
		return prompt, answers
	}
	if e.Plain++; e.Converse {
		asks, said := data.Converse(prompt, answers...)
		e.keepGlue(answers, said)
		return asks, said
	}
	return prompt, answers
}

// Preference encodes a pair: answer 0 is the chosen one, answer 1 the rejected.
func (e *Encoder) Preference(p data.Preference) (Group, error) {
	return e.group(p.Source, p.Prompt, p.Chosen, p.Rejected)
}

// A Target says which tokens of a demonstration are targets.
type Target string

// The targets. Of all but All, messages with "train": false are left out.
const (
	Completion Target = "completion" // what the chat template marks with {% generation %}; without marks, as Turns
	Turns      Target = "turns"      // all that the assistant says in the completion
	Last       Target = "last"       // the last message; of it what the template marks
	All        Target = "all"        // every token but the first
)

// Demonstration encodes a prompt with its completion. A record without a prompt (plain text) is all completion.
func (e *Encoder) Demonstration(d data.Demonstration, target Target) (Group, error) {
	if d.Prompt.Empty() && d.Completion.Messages == nil {
		return e.plainText(d)
	}
	prompt, answers := e.converse(d.Prompt, d.Completion)
	d.Prompt, d.Completion = prompt, answers[0]
	all := target == All
	if target == Last {
		d = d.Last()
	}
	if !all && target != Turns && d.Completion.IsChat() && e.Tokenizer.Marks() {
		e.Marked++
		return e.marked(d)
	}
	if len(d.Completion.Trained()) < len(d.Completion.Messages) {
		if !all {
			return e.turns(d)
		}
		d = d.Last()
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
	t, _ = e.converse(t)
	p := start{Encoder: e, prompt: t}
	err := p.encode()
	return p.ids, err
}

func (e *Encoder) group(source string, prompt data.Text, answers ...data.Text) (Group, error) {
	prompt, answers = e.converse(prompt, answers...)
	ids, err := e.answers(prompt, answers)
	if err != nil {
		return Group{}, fmt.Errorf("%s: %w", source, err)
	}
	return Group{Prompt: ids[0], Answers: ids[1:]}, nil
}

// answers encodes a prompt, and the completions behind it.
func (e *Encoder) answers(prompt data.Text, answers []data.Text) ([][]int32, error) {
	p := start{Encoder: e, prompt: prompt}
	if err := p.encode(); err != nil {
		return nil, err
	}
	if len(p.ids) == 0 {
		return nil, fmt.Errorf("the prompt has no tokens: want at least one")
	}
	all, common := [][]int32{p.ids}, [][]int32{p.ids}
	for _, a := range answers {
		tokens, full, err := p.answer(a)
		if err != nil {
			return nil, err
		}
		all, common = append(all, tokens), append(common, full)
	}
	if !p.merged {
		return all, nil
	}
	n := len(p.ids)
	for _, full := range common {
		n = min(n, shared(p.ids, full))
	}
	if n == 0 { // nothing is before the answer
		e.Drift++
		return all, nil
	}
	for i := range common {
		common[i] = common[i][n:]
	}
	common[0] = p.ids[:n:n]
	return common, nil
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

// Render writes messages with the chat template, and with generate the beginning of the next one.
func (e *Encoder) Render(msgs []data.Message, generate bool) (string, error) {
	text, _, err := e.renderMarked(msgs, generate)
	return text, err
}

// renderMarked is Render with the stretches that the template marks with {% generation %}.
func (e *Encoder) renderMarked(msgs []data.Message, generate bool) (string, []jinja.Stretch, error) {
	if !e.Tokenizer.HasTemplate() {
		_, err := e.Tokenizer.Render(nil, tokenizer.RenderOptions{}) // names the folder and the files
		return "", nil, fmt.Errorf("the row is a conversation, for which the model must have a chat template (plain "+
			"text needs none); %w", err)
	}
	ms := make([]tokenizer.Message, len(msgs))
	for i, m := range msgs {
		ms[i] = tokenizer.Message{Role: m.Role, Content: e.unglued(m), Whole: m.Whole}
	}
	tools := ""
	if len(msgs) > 0 {
		tools = msgs[0].Tools
	}
	return e.Tokenizer.RenderMarked(ms, e.renderOptions(generate, tools))
}

func (e *Encoder) renderOptions(generate bool, tools string) tokenizer.RenderOptions {
	o := tokenizer.RenderOptions{AddGenerationPrompt: generate, Extra: maps.Clone(e.Variables)}
	if tools != "" {
		if o.Extra == nil {
			o.Extra = map[string]any{}
		}
		o.Extra["tools"] = json.RawMessage(tools)
	}
	return o
}

// withEOS ends a plain-text completion; conversations end as their template ends them.
func (e *Encoder) withEOS(ids []int32) []int32 {
	e.Ended = true
	eos, ok := e.Tokenizer.End()
	if !ok || len(ids) > 0 && ids[len(ids)-1] == eos {
		return ids
	}
	return append(ids, eos)
}
