// Command posttrain aligns language models: MaPPO preference optimisation, supervised fine-tuning, and what belongs to
// them. Every command is one file: its options, its constructor, its run.
//
// Exit codes: 0 done; 1 failed, with one line on standard error that says why; 2 wrong use of the command line; 130
// interrupted, with the work so far saved.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"golang.org/x/term"

	"github.com/posttrain/posttrain/train"
)

const (
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130
)

// streams are where a command reads and writes; tests give their own.
type streams struct {
	in       io.Reader
	out, err io.Writer
	terminal bool // err is a terminal: progress bars are welcome
}

func main() {
	// The first Ctrl-C lets the running step finish and be saved; the second ends the process as it always does.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	s := streams{in: os.Stdin, out: os.Stdout, err: os.Stderr, terminal: term.IsTerminal(int(os.Stderr.Fd()))}
	os.Exit(execute(ctx, s, os.Args[1:]))
}

// execute runs the command line and returns the exit code.
func execute(ctx context.Context, s streams, args []string) (code int) {
	defer func() {
		if r := recover(); r != nil {
			fmt.Fprintf(s.err, "posttrain: internal error, please report it: %s\n", oneLine(fmt.Sprint(r)))
			if os.Getenv("POSTTRAIN_DEBUG") != "" {
				s.err.Write(debug.Stack())
			}
			code = exitFailed
		}
	}()
	root := newRoot(s)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, train.ErrInterrupted):
		fmt.Fprintln(s.err, "posttrain: "+err.Error())
		return exitInterrupted
	}
	fmt.Fprintln(s.err, "posttrain: "+tidy(err.Error()))
	if errors.As(err, new(usageError)) {
		return exitUsage
	}
	return exitFailed
}

// usageError is a fault of the command line itself.
type usageError struct{ error }

// tidy keeps the lines of an error that lists several faults, one fault a line, without blank ones.
func tidy(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimRight(line, " \r\n"); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
