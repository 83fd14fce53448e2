package agent

import (
	"context"
	"errors"
	"slices"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/rollout"
)

// Conversation is a conversation to hold. Its Messages are what [Prompt] gives; Samples is 1.
type Conversation struct {
	rollout.Conversation
	Name        string // of the item, for errors
	Form        Form   // of a server that gives tool calls apart: Hermes
	Environment Environment
	// Tokens is the most tokens of a prompt, where the chat counts them as [rollout.Local] does. A server refuses
	// longer ones, which ends all.
	Tokens int // 0: no limit
}

// Dialogue is a conversation that was held.
type Dialogue struct {
	Messages []data.Message // all: those asked, the model's, and what it read
	Turns    int            // messages of the model
	Tokens   int            // that it drew; 0: a server does not say
	Reason   string         // [rollout.EOS] where the environment ended it, [rollout.Turns], [rollout.Length]
}

// counter is a chat that shows a prompt's tokens.
type counter interface {
	Prompt(c rollout.Conversation) ([]int32, error)
}

// Converse holds conversations over a chat, until the environment ends them, a message is cut off, or they have turns
// messages of the model. All take a turn together. The first message is drawn with the conversation's seed, a later one
// with a seed that follows from it.
func Converse(ctx context.Context, chat rollout.Chat, asked []Conversation, turns int) ([]Dialogue, error) {
	open := make([]*held, len(asked))
	for i, c := range asked {
		open[i] = &held{asked: c, world: World{Form: c.Form, Environment: c.Environment, Messages: c.Messages, Name: c.Name}}
		open[i].prompts, _ = chat.(counter)
	}
	all := slices.Clone(open)
	for turn := 0; turn < turns && len(open) > 0; turn++ {
		next := make([]rollout.Conversation, len(open))
		for i, h := range open {
			next[i] = h.next(turn)
		}
		answers, err := chat.Answer(ctx, next)
		if err != nil {
			return nil, err
		}
		var still []*held
		for i, h := range open {
			goes, err := h.take(answers[i][0])
			if err != nil {
				return nil, err
			}
			if goes {
				still = append(still, h)
			}
		}
		open = still
	}
	dialogues := make([]Dialogue, len(all))
	for i, h := range all {
		dialogues[i] = h.done
		dialogues[i].Messages, dialogues[i].Turns = h.world.Messages, h.world.turns
	}
	return dialogues, nil
}

// held is a conversation on its way.
type held struct {
	asked   Conversation
	world   World
	done    Dialogue
	prompts counter // nil: the chat has none
}

// next is what the chat answers in a turn.
func (h *held) next(turn int) rollout.Conversation {
	c := h.asked.Conversation
	c.Messages, c.Samples, c.Stop = h.world.Messages, 1, slices.Concat(c.Stop, h.asked.Form.Stop())
	if turn > 0 {
		c.Seed = rollout.DrawSeed(c.Seed, turn)
	}
	return c
}

// take hears a message. It is false where the conversation is over.
func (h *held) take(a rollout.Answer) (goes bool, err error) {
	text := h.asked.Prefill + a.Text
	h.done.Tokens, h.done.Reason = h.done.Tokens+a.Tokens, rollout.EOS
	if a.Reason == rollout.Length {
		h.done.Reason = rollout.Length
		h.world.turns++
		h.world.Messages = append(h.world.Messages, data.Message{Role: "assistant", Content: text})
		return false, nil
	}
	x, over, err := h.world.hear(text)
	if err != nil || over {
		return false, err
	}
	tokens := 0
	err = h.world.add(x, func(how writing) (err error) {
		tokens, err = h.measure(x, how)
		return err
	})
	h.done.Reason = rollout.Turns
	if most := h.asked.Tokens; most > 0 && tokens >= most {
		h.done.Reason = rollout.Length
		return false, err
	}
	return true, err
}

// measure gives the length of the prompt with an exchange, where the chat shows it. A server takes results of calls
// alone that are apart.
func (h *held) measure(x exchange, how writing) (int, error) {
	if h.prompts != nil {
		c := h.asked.Conversation
		c.Messages = slices.Concat(h.world.Messages, x.messages(how))
		ids, err := h.prompts.Prompt(c)
		return len(ids), err
	}
	if how.verbatim && len(x.calls) > 0 && x.form != Text {
		return 0, errors.New("servers take no results without calls")
	}
	return 0, nil
}
