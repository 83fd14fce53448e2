package batch

import (
	"slices"
	"testing"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/tokenizer"
)

// TestRowsOfChatsTrainWhatWasDrawn: whether the template or the answer writes the blank between prompt and answer, a
// row of an answer's text, the conversation that it continues and the row of a plain prompt have the drawn tokens.
func TestRowsOfChatsTrainWhatWasDrawn(t *testing.T) {
	for name, template := range map[string]string{
		"the template's": "{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]{% else %} " +
			"{{ m.content }}{{ eos_token }}{% endif %}{% endfor %}",
		"the answer's": "{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]{% else %}" +
			"{{ m.content }}{{ eos_token }}{% endif %}{% endfor %}",
	} {
		tok, err := tokenizer.Load("../../rollout/testdata/first-blank")
		if err == nil {
			err = tok.SetChat(tokenizer.ChatOptions{Template: template})
		}
		expect.OK(t, err)
		const engin, ir, eos = 574, 547, 2 // "▁engin", "IR"
		asks, drawn := []data.Message{{Role: "user", Content: "The lake"}}, []int32{engin, ir, eos}
		said := data.Message{Role: "assistant", Content: " enginIR"} // the text behind the prompt's
		e := &Encoder{Tokenizer: tok, Converse: true}
		for _, d := range []data.Demonstration{
			{Prompt: data.Text{Messages: asks}, Completion: data.Text{Messages: []data.Message{said}}},
			{Prompt: data.Text{Plain: "The lake"}, Completion: data.Text{Plain: said.Content}},
		} {
			g, err := e.Demonstration(d, Completion)
			if err != nil || !slices.Equal(g.Answers[0], drawn) {
				t.Errorf("%s, %+v: %v, %v", name, d, g, err)
			}
			first, err := e.Prompt(data.Text{Messages: asks})
			next, err2 := e.Prompt(data.Text{Messages: append(slices.Clone(asks), said, asks[0])})
			if want := slices.Concat(first, drawn); err != nil || err2 != nil || !slices.Equal(next[:len(want)], want) {
				t.Errorf("%s: the next prompt %v does not continue %v", name, next, want)
			}
		}
		two := data.Message{Role: "assistant", Content: "  enginIR"}
		text, err := e.Render(append(slices.Clone(asks), two), false)
		want := map[string]string{"the template's": "[INST] The lake [/INST]   enginIR</s>",
			"the answer's": "[INST] The lake [/INST]  enginIR</s>"}[name]
		if err != nil || text != want {
			t.Errorf("%s: %q, %v, want %q", name, text, err, want)
		}
	}
}
