package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/recipe/generate"
)

func newGenerate(s streams) *cobra.Command {
	c := configured[generate.Options]{spec: generate.Spec, flags: generateFlags}
	c.run = func(ctx context.Context, o generate.Options, r run.Reporter) (string, error) {
		o.Writer = s.answers
		if o.Talks() {
			return "", talk(ctx, s, o, r)
		}
		return summary(generate.Run)(ctx, o, r)
	}
	return c.command(s, &cobra.Command{
		Use:   "generate",
		Short: "Let a model continue a prompt, a file of prompts, or a conversation",
		Long: "Let a model continue a prompt, printed while it is written; a file of prompts, one JSON line for\n" +
			"each answer; or, with --chat alone, a conversation, line by line (/new starts a new one, the end of\n" +
			"the input ends it). A prompt is continued as plain text; with --chat it is a user's message, and the\n" +
			"model's chat template is applied. The template is always applied to rows that hold conversations.",
		Example: "  posttrain generate --model DIR --prompt Hello\n" +
			"  posttrain generate --model DIR --chat\n" +
			"  posttrain generate --model DIR --input prompts.jsonl --samples 8 --out answers.jsonl",
	})
}

var generateFlags = slices.Concat([]config.Flag{
	{Name: "model", Key: "model", Help: modelHelp + " (default embedded)"},
	{Name: "adapter", Key: "adapter", Help: adapterHelp},
	{Name: "cache-gb", Key: "cache_gb", Help: cacheHelp},
	{Name: "backend", Key: "backend", Help: backendHelp + " (default auto)"},
	{Name: "input", Key: "input",
		Help: "prompts, .jsonl, .json or .parquet, or " + hubRows + ": column prompt (text or messages) or " +
			"messages"},
	{Name: "max-new-tokens", Key: "max_new_tokens", Help: "most tokens of an answer (default 256)"},
	{Name: "temperature", Key: "temperature",
		Help: "temperature of the draws; 0 always takes the likeliest token (default 1)"},
}, templateFlags, truncationFlags)

// templateFlags say what the chat template gets.
var templateFlags = []config.Flag{
	{Name: "chat-template", Key: "chat_template.template",
		Help: "file with a chat template in the place of the model's own"},
	{Name: "chat-variables", Key: "chat_template.variables", Exact: true,
		Help: "variable of the chat template, such as enable_thinking=false (may be repeated)"},
	{Name: "chat-date", Key: "chat_template.date",
		Help: "day that the chat template prints as today, such as 2026-01-31"},
}

// truncationFlags cut off the draws.
var truncationFlags = []config.Flag{
	{Name: "top-k", Key: "top_k", Help: "draw only from the k likeliest tokens (0 = off)"},
	{Name: "top-p", Key: "top_p",
		Help: "draw only from the likeliest tokens that together have this probability (0 = off)"},
	{Name: "min-p", Key: "min_p",
		Help: "draw only from tokens at least this share as likely as the likeliest (0 = off)"},
	{Name: "stop", Key: "stop", Help: "text that ends an answer (may be repeated)", Exact: true},
}

// freshCommand begins a new conversation.
const freshCommand = "/new"

// talk holds a conversation: a line is a message, the model's answer follows.
func talk(ctx context.Context, s streams, o generate.Options, r run.Reporter) error {
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
