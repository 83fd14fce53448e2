package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/recipe/generate"
)

func newGenerate(s streams) *cobra.Command {
	c := configured[generate.Options]{spec: generate.Spec}
	c.run = func(ctx context.Context, o generate.Options, r run.Reporter) (string, error) {
		o.Writer = s.answers
		if o.Talks() {
			return "", converse(ctx, s, o, r)
		}
		return summary(generate.Run)(ctx, o, r)
	}
	return c.command(s, &cobra.Command{
		Use:   "generate",
		Short: "Let a model continue a prompt, a file of prompts, or a conversation",
		Long: "Let a model continue a prompt, printed while it is written; a file of prompts, one JSON line for\n" +
			"each answer; or, with --chat alone, a conversation, line by line (/new starts a new one, the end of\n" +
			"the input ends it). A prompt is continued as plain text; with --chat it is a user's message, and the\n" +
			"model's chat template is applied. Rows of a file go through the template, where the model has one.",
		Example: "  posttrain generate --model DIR --prompt Hello\n" +
			"  posttrain generate --model DIR --chat\n" +
			"  posttrain generate --model DIR --input prompts.jsonl --samples 8 --out answers.jsonl",
	})
}

// freshCommand begins a new conversation.
const freshCommand = "/new"

// converse holds a conversation: a line is a message, the model's answer follows.
func converse(ctx context.Context, s streams, o generate.Options, r run.Reporter) error {
	c, err := generate.Talk(o, r)
	if err != nil {
		return err
	}
	defer c.Close()
	lines, broken := readLines(ctx, s.in)
	for {
		if s.terminal {
			fmt.Fprint(s.err, "> ")
		}
		line, ok := next(ctx, lines)
		switch {
		case ctx.Err() != nil:
			return recipe.ErrInterrupted
		case !ok:
			return *broken
		case strings.TrimSpace(line) == freshCommand:
			c.Forget()
			continue
		}
		if err := c.Reply(ctx, line); err != nil {
			return err
		}
	}
}

// next gives the next line, false at the end of the input or of the context.
func next(ctx context.Context, lines <-chan string) (line string, ok bool) {
	select {
	case line, ok = <-lines:
		return line, ok
	case <-ctx.Done():
		return "", false
	}
}

// readLines reads in the background, so that an interrupt need not wait for a line. The error is set when the channel
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
