package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/train"
)

// freshCommand begins a new conversation.
const freshCommand = "/new"

// talk holds a conversation: a line is a message, the model's answer follows.
func (g *generation) talk(ctx context.Context) error {
	lines, broken := readLines(ctx, g.in)
	var history []data.Message
	for turn := 0; ; turn++ {
		if g.terminal {
			fmt.Fprint(g.err, "> ")
		}
		line, ok := next(ctx, lines)
		switch {
		case ctx.Err() != nil:
			return train.ErrInterrupted
		case !ok:
			return *broken
		case strings.TrimSpace(line) == "":
			continue
		case strings.TrimSpace(line) == freshCommand:
			history = nil
			continue
		}
		var err error
		if history, err = g.reply(ctx, append(history, data.Message{Role: "user", Content: line}), turn); err != nil {
			return stopped(ctx, err)
		}
	}
}

// next is the next line, false at the end of the input or of the context.
func next(ctx context.Context, lines <-chan string) (line string, ok bool) {
	select {
	case line, ok = <-lines:
		return line, ok
	case <-ctx.Done():
		return "", false
	}
}

// readLines reads while nobody waits, so that an interrupt need not wait for a line. The error is there when the channel
// is closed.
func readLines(ctx context.Context, in io.Reader) (<-chan string, *error) {
	lines, broken := make(chan string), new(error)
	go func() {
		defer close(lines)
		s := bufio.NewScanner(in)
		s.Buffer(nil, 1<<20)
		for s.Scan() {
			select {
			case lines <- strings.ToValidUTF8(s.Text(), "\uFFFD"):
			case <-ctx.Done():
				return
			}
		}
		if s.Err() != nil {
			*broken = fmt.Errorf("standard input: %w: want lines of at most 1 MiB", s.Err())
		}
	}()
	return lines, broken
}

// reply prints the model's answer to a conversation, and adds it.
func (g *generation) reply(ctx context.Context, history []data.Message, turn int) ([]data.Message, error) {
	history, r, err := g.fitting(history, turn)
	if err != nil {
		return nil, err
	}
	c, err := g.stream(ctx, r)
	if err != nil {
		return nil, err
	}
	return append(history, data.Message{Role: "assistant", Content: c.Text}), nil
}

// fitting forgets the oldest messages and answers where the model has no positions for them beside the answer, or beside half a context.
func (g *generation) fitting(history []data.Message, turn int) ([]data.Message, rollout.Request, error) {
	positions := g.model.Model.Config.MaxPositions
	for forgotten := false; ; forgotten = true {
		r, err := g.request(data.PromptRow{Prompt: data.Text{Messages: history}, Source: "the conversation"}, turn)
		tooLong := len(r.Prompt)+min(g.flags.MaxNew, positions/2) > positions
		if len(history) > 2 && len(r.Prompt) > 0 && tooLong {
			history = history[2:]
			continue
		}
		if forgotten {
			fmt.Fprintf(g.err, "(the oldest messages are forgotten: the model has %d positions)\n", positions)
		}
		return history, r, err
	}
}
