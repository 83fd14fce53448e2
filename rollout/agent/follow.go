package agent

import (
	"errors"
	"slices"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/batch"
)

// Conversation is one with tools that is held by text, over any chat: a model in this process or a server's.
type Conversation struct {
	Messages []data.Message     // the first: what [Prompt] gives
	Form     Form               // of a server that gives tool calls apart: Hermes
	Open     func() Environment // as it is at the beginning
	Encoder  *batch.Encoder     // of a model in this process; nil: a server's
	Name     string             // of the item, for errors
}

// Follow holds the conversation again, in which the model has said some messages. It gives all messages, also what the
// model reads next, and the environment; over: that has ended it.
func (c Conversation) Follow(said []string) (messages []data.Message, env Environment, over bool, err error) {
	w := World{Encoder: c.Encoder, Form: c.Form, Environment: c.Open(), Messages: c.Messages, Name: c.Name}
	for _, text := range said {
		var x exchange
		if x, over, err = w.hear(text); err == nil && !over {
			err = w.add(x, func(how writing) error { return w.takes(x, how) })
		}
		if over || err != nil {
			break
		}
	}
	return w.Messages, w.Environment, over, err
}

// takes is an error where the chat does not take an exchange in that writing. A server takes a result only with its
// call in tool_calls.
func (w *World) takes(x exchange, how writing) error {
	if w.Encoder == nil {
		if how.verbatim && len(x.calls) > 0 && x.form != Text {
			return errors.New("servers take no results without calls")
		}
		return nil
	}
	_, err := w.Encoder.Prompt(data.Text{Messages: slices.Concat(w.Messages, x.messages(how))})
	return err
}
