package local

import (
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/tokenizer"
)

// RowChat says how rows become text: what the chat template gets, and whether plain prompts go through it.
type RowChat struct {
	Chat      `yaml:",inline"`
	PlainText `yaml:",inline"`
}

// PlainText says what becomes of plain prompts and their answers. The zero value is template.
type PlainText struct {
	Plain string `yaml:"plain,omitempty" want:"|template|text" words:"template or text" flag:"chat-plain" help:"plain prompts and their answers: template (default), messages of user and assistant where the model has a chat template; text, as they are"`
}

// Encoder encodes rows as the options say.
func (p PlainText) Encoder(t *tokenizer.Tokenizer) *batch.Encoder {
	return &batch.Encoder{Tokenizer: t, Converse: p.Plain != "text" && t.HasTemplate()}
}

// Describe says in a line what became of the plain prompts that an encoder has met; "" without any, or without a chat
// template. off is the option that keeps text.
func (p PlainText) Describe(e *batch.Encoder, off string) string {
	switch {
	case e.Plain == 0 || !e.Tokenizer.HasTemplate():
		return ""
	case e.Converse:
		return "plain prompts go through the model's chat template, as the user's messages (" + off + ": as text)"
	}
	return "plain prompts stay as they are, without the model's chat template (" + off + ")"
}
