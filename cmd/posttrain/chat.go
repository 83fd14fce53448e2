package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/recipe/generate"
)

func newChat(s streams) *cobra.Command {
	c := configured[generate.ChatOptions]{spec: generate.ChatSpec}
	c.run = func(ctx context.Context, o generate.ChatOptions, r run.Reporter) (string, error) {
		o.Writer = s.answers
		return "", converse(ctx, s, o, r)
	}
	cmd := c.command(s, &cobra.Command{
		Use:   "chat [RUN|DIR|org/name]",
		Short: "Talk with a model, or with what a run has trained",
		Long: "Talk with a model; of a run folder, with the model or adapter that the run has trained. A line is a\n" +
			"message, the answer is printed while it is written. The lines of a pipe are messages, too. Lines that\n" +
			"begin with / are commands:\n\n" +
			"  /reset        begin a new conversation\n" +
			"  /system TEXT  give another system message; without a text none\n" +
			"  /save FILE    add the conversation to FILE.jsonl, as a line that posttrain sft reads\n" +
			"  /quit         end, as the end of the input does\n\n" +
			"Ctrl-C ends an answer; the next one ends the program.",
		Example: "  posttrain chat runs/mappo-20260102-150405\n" +
			"  posttrain chat runs/mappo-20260102-150405 --compare\n" +
			"  posttrain chat DIR --system \"You answer in one word.\" --temperature 0\n" +
			"  posttrain chat < questions.txt",
	})
	talk := cmd.RunE
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		model := cmd.Flags().Lookup("model").Value
		for i, name := range args {
			if i > 0 || model.String() != "" {
				return usageError{fmt.Errorf("chat wants one model, found %q and %q", model, name)}
			}
			model.Set(name) // a text cannot be wrong
		}
		return talk(cmd, nil)
	}
	return cmd
}

// converse holds a conversation: a line is a message or a command. What is wrong with a line ends it only where nobody
// sees the message at once.
func converse(ctx context.Context, s streams, o generate.ChatOptions, r run.Reporter) error {
	c, err := generate.Talk(o, r)
	if err != nil {
		return err
	}
	defer c.Close()
	signal.Reset(os.Interrupt) // it ended the program's context
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	defer signal.Stop(interrupts)
	lines, broken := readLines(ctx, s.in)
	for {
		if s.terminal {
			fmt.Fprint(s.err, "> ")
		}
		select {
		case <-interrupts:
			return recipe.ErrInterrupted
		case <-ctx.Done():
			return recipe.ErrInterrupted
		case line, more := <-lines:
			if !more || strings.TrimSpace(line) == "/quit" {
				return *broken
			}
			err = obey(ctx, c, line, interrupts)
		}
		switch {
		case ctx.Err() != nil:
			return recipe.ErrInterrupted
		case errors.Is(err, recipe.ErrInterrupted):
			r.Say("(stopped; Ctrl-C again ends the conversation)")
		case err != nil && s.terminal:
			r.Warn("%s", oneLine(err))
		case err != nil:
			return err
		}
	}
}

// obey does what a line says.
func obey(ctx context.Context, c *generate.Conversation, line string, interrupts <-chan os.Signal) error {
	command, argument, _ := strings.Cut(strings.TrimSpace(line), " ")
	switch argument = strings.TrimSpace(argument); command {
	case "/reset":
		c.Forget()
	case "/system":
		c.SetSystem(argument)
	case "/save":
		return c.Save(argument)
	default:
		if strings.HasPrefix(command, "/") && !strings.Contains(command[1:], "/") {
			return fmt.Errorf("unknown command %s: want /reset, /system, /save or /quit", command)
		}
		return replyTo(ctx, c, line, interrupts)
	}
	return nil
}

// replyTo answers a message until an interrupt.
func replyTo(ctx context.Context, c *generate.Conversation, message string, interrupts <-chan os.Signal) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		select {
		case <-interrupts:
			stop()
		case <-ctx.Done():
		}
	}()
	return c.Reply(ctx, message)
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
