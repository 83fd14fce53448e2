package generate

import (
	"context"
	"strings"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/run"
)

// Conversation is a model that answers one message after the other. Close it.
type Conversation struct {
	g       *generator
	history []data.Message
	turn    int // of all calls of Reply and Forget: each turn has draws of its own
}

// Talk opens a model to talk with. A nil Reporter is silent.
func Talk(o Options, r run.Reporter) (*Conversation, error) {
	g, err := open(o, r)
	if err != nil {
		return nil, err
	}
	return &Conversation{g: g}, nil
}

// Close frees the model.
func (c *Conversation) Close() { c.g.model.Close() }

// Forget begins a new conversation.
func (c *Conversation) Forget() {
	c.history = nil
	c.turn++
}

// Reply answers a message that is not blank; Options.Writer gets the answer as it is drawn.
func (c *Conversation) Reply(ctx context.Context, message string) error {
	defer func() { c.turn++ }()
	if strings.TrimSpace(message) == "" {
		return nil
	}
	c.history = append(c.history, data.Message{Role: "user", Content: message})
	q, err := c.question()
	if err != nil {
		return err
	}
	answer, err := c.g.stream(ctx, q)
	if err != nil {
		return c.g.stopError(ctx, err)
	}
	c.history = append(c.history, data.Message{Role: "assistant", Content: answer.Text})
	return nil
}

// question forgets the oldest messages and answers where the model has no positions for them beside the answer, or
// beside half its positions.
func (c *Conversation) question() (*ask.Question, error) {
	positions := c.g.positions()
	for forgotten := false; ; forgotten = true {
		q := &ask.Question{Prompt: data.Text{Messages: c.history}, Source: "the conversation"}
		err := c.g.encode(q, c.turn)
		tooLong := len(q.Tokens)+min(c.g.o.MaxNew, positions/2) > positions
		if len(c.history) > 2 && len(q.Tokens) > 0 && tooLong {
			c.history = c.history[2:]
			continue
		}
		if forgotten {
			c.g.Say("(the oldest messages are forgotten: the model has %d positions)", positions)
		}
		return q, err
	}
}
