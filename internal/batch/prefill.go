package batch

import (
	"strings"

	"github.com/posttrain/posttrain/data"
)

// Prefilled encodes a prompt with the beginning of its answer: text such as "<think>\n" behind the generation prompt,
// tokenised together with it. A chat template that already ends its generation prompt with this text (white space at
// the end aside), as some reasoning models' do, gets it only once. An empty prefill is Prompt.
func (e *Encoder) Prefilled(t data.Text, prefill string) ([]int32, error) {
	if prefill == "" {
		return e.Prompt(t)
	}
	if t, _ = e.converse(t); t.Messages == nil {
		return e.encodeStart(t.Plain + prefill)
	}
	text, err := e.Render(t.Messages, true)
	if err != nil {
		return nil, err
	}
	if endsWith(text, prefill) {
		prefill = ""
	}
	if err := checkThought(text, prefill+data.ThinkClose); err != nil {
		return nil, err
	}
	text += prefill
	return e.Tokenizer.Encode(text, false)
}

// Opens says whether the chat template itself ends the generation prompt of a conversation with this text: an answer
// then begins behind it, whatever is prefilled.
func (e *Encoder) Opens(t data.Text, prefill string) (bool, error) {
	if t.Messages == nil {
		return false, nil
	}
	text, err := e.Render(t.Messages, true)
	return err == nil && endsWith(text, prefill), err
}

// endsWith compares without white space at the end.
func endsWith(text, suffix string) bool {
	suffix = strings.TrimSpace(suffix)
	return suffix != "" && strings.HasSuffix(strings.TrimSpace(text), suffix)
}
