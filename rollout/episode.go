package rollout

import (
	"context"
	"fmt"
)

// World is what the messages of one episode act on: tools, a user, a game.
type World interface {
	// Reply is what the model reads after its message, up to where its next message begins; nothing where the episode
	// is over.
	Reply(message Completion) ([]int32, error)
}

// Turns is the reason of an episode that reached its most messages.
const Turns = "turns"

// Episodes samples conversations of a model with worlds: a request that has a World continues after its first message
// with what the world replies, until that is nothing, or an episode has Turns messages or Tokens tokens. What the world
// says is among the completion's tokens and not Drawn. A message has at most MaxNew tokens; its draws depend on the
// request's seed and the message's number. A request without a World has one message.
type Episodes struct {
	Sampler
	Turns  int // most messages of the model
	Tokens int // most tokens of prompt and episode together: no more than the model has positions
}

// Sample implements [Sampler]. All episodes take a turn together, and each turn reads its prompt anew: with a cache in
// the host's memory they are one call, in which a row keeps what it has read, and its group's prompt is there once.
func (e Episodes) Sample(ctx context.Context, requests []Request) ([]Completion, error) {
	all := make([]Completion, len(requests))
	open := make([]*episode, len(requests))
	for i, r := range requests {
		open[i] = &episode{Request: r, index: i, done: &all[i]}
		if r.Open != nil {
			all[i].World = r.Open()
		}
	}
	if c, ok := e.Sampler.(*Cached); ok && c.engine.Wants.SharedMemory {
		return all, e.inOneCall(ctx, c, open)
	}
	for turn := 0; len(open) > 0; turn++ {
		next := make([]Request, len(open))
		for i, o := range open {
			next[i] = o.next(turn, e.Tokens)
		}
		messages, err := e.Sampler.Sample(ctx, next)
		if err != nil {
			return nil, err
		}
		if len(messages) != len(next) {
			return nil, fmt.Errorf("%d completions of %d requests", len(messages), len(next))
		}
		var still []*episode
		for i, o := range open {
			goes, err := o.take(messages[i], turn+1 == e.Turns, e.Tokens)
			if err != nil {
				return nil, err
			}
			if goes {
				still = append(still, o)
			}
		}
		open = still
	}
	return all, nil
}

// inOneCall samples all turns in one call.
func (e Episodes) inOneCall(ctx context.Context, c *Cached, open []*episode) error {
	requests := make([]Request, len(open))
	for i, o := range open {
		requests[i] = o.next(0, e.Tokens)
		if o.Open == nil {
			continue
		}
		turn := 0
		requests[i].about = min(e.Tokens-len(o.Prompt), aboutMessages*e.Turns*o.MaxNew)
		requests[i].more = func(m Completion) (*Request, error) {
			turn++
			goes, err := o.take(m, turn == e.Turns, e.Tokens)
			if err != nil || !goes {
				return nil, err
			}
			next := o.next(turn, e.Tokens)
			return &next, nil
		}
	}
	messages, err := c.Sample(ctx, requests)
	if err != nil {
		return err
	}
	for i, o := range open {
		if o.Open == nil {
			*o.done = messages[i]
		}
	}
	return nil
}

// aboutMessages: an episode has about twice the tokens of the model's messages. The environment writes the others.
const aboutMessages = 2

// episode is a request on its way.
type episode struct {
	Request
	index int
	done  *Completion
}

// next is the request of the next message.
func (o *episode) next(turn, most int) Request {
	r := o.Request
	if r.Open == nil {
		return r
	}
	if turn > 0 {
		r.Prompt, r.Seed = append(r.Prompt[:len(r.Prompt):len(r.Prompt)], o.done.Tokens...), Mix(r.Seed^Mix(uint64(turn)))
	}
	r.MaxNew, r.OnEnd = min(r.MaxNew, most-len(r.Prompt)), nil
	return r
}

// take adds a message and what the world replies. It is false where the episode is over.
func (o *episode) take(message Completion, last bool, most int) (goes bool, err error) {
	if goes, err = o.add(message, last, most); err == nil && !goes && o.Open != nil && o.OnEnd != nil {
		o.OnEnd(o.done.DrawnTokens())
	}
	return goes, err
}

func (o *episode) add(message Completion, last bool, most int) (goes bool, err error) {
	if o.Open == nil {
		*o.done = message
		return false, nil
	}
	d := o.done
	if message.Reason == Missing {
		*d = message
		return false, nil
	}
	d.add(message.Tokens, message.Logps, true)
	d.Reason, d.Version, d.Text, d.Raw = message.Reason, message.Version, message.Text, message.Raw
	if message.Reason == Length {
		return false, nil
	}
	reply, err := d.World.Reply(message)
	if err != nil {
		return false, fmt.Errorf("request %d, after message %d: %w", o.index, d.Messages, err)
	}
	switch {
	case len(reply) == 0:
		return false, nil
	case last:
		d.Reason = Turns
		return false, nil
	case len(o.Prompt)+len(d.Tokens)+len(reply) >= most:
		d.Reason = Length
		return false, nil
	}
	d.add(reply, make([]float32, len(reply)), false)
	return true, nil
}

// add appends tokens that the model drew in a message, or read.
func (c *Completion) add(tokens []int32, logps []float32, drawn bool) {
	c.Tokens, c.Logps = append(c.Tokens, tokens...), append(c.Logps, logps...)
	for range tokens {
		c.Drawn = append(c.Drawn, drawn)
	}
	if drawn {
		c.Messages++
	}
}

// DrawnLogps are the log-probs of the tokens that the model drew.
func (c *Completion) DrawnLogps() []float32 {
	if c.Drawn == nil {
		return c.Logps
	}
	var logps []float32
	for i, drawn := range c.Drawn {
		if drawn {
			logps = append(logps, c.Logps[i])
		}
	}
	return logps
}

// DrawnTokens is how many tokens the model drew.
func (c *Completion) DrawnTokens() int {
	n := len(c.Tokens)
	for _, drawn := range c.Drawn {
		if !drawn {
			n--
		}
	}
	return n
}
