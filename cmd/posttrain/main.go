// Command posttrain aligns language models with preference optimisation (MaPPO) and reinforcement learning (CI-RL), and
// measures what they leak. Every command is one file: its texts, its flags, and the recipe that it runs.
//
// Exit codes: 0 success; 1 failure, with one line on standard error that says why; 2 wrong use of the command line; 130
// interrupted, with the work so far saved.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	"golang.org/x/term"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/internal/secret"
	"github.com/posttrain/posttrain/train"
)

const (
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130
)

func main() {
	log.SetOutput(io.Discard) // net/http logs what a server sends out of turn, which may hold a key
	s := streams{in: os.Stdin, out: os.Stdout, err: os.Stderr, terminal: term.IsTerminal(int(os.Stderr.Fd()))}
	s.shown = term.IsTerminal(int(os.Stdout.Fd()))
	os.Exit(execute(untilSignal(), s, os.Args[1:]))
}

// execute runs the command line and returns the exit code.
func execute(ctx context.Context, s streams, args []string) (code int) {
	defer func() {
		if r := recover(); r != nil {
			fmt.Fprintf(s.err, "posttrain: internal error, please report it: %s\n", oneLine(fmt.Errorf("%v", r)))
			if os.Getenv("POSTTRAIN_DEBUG") != "" {
				s.err.Write(debug.Stack())
			}
			code = exitFailed
		}
	}()
	ctx, out := s.guard(ctx)
	defer out.stop()
	s.escape()
	root := newRoot(s)
	root.SetArgs(args)
	err := unknownCommand(root, args)
	if err == nil {
		err = root.ExecuteContext(ctx)
	}
	if lost := out.failure(); lost != nil {
		err = lost
	}
	if err == nil {
		return 0
	}
	for _, line := range lines(err) {
		fmt.Fprintln(s.err, "posttrain: "+secret.HideUsers(line))
	}
	return codeOf(err)
}

// codeOf gives the exit code of a command that failed.
func codeOf(err error) int {
	var faults config.Faults
	switch {
	case errors.Is(err, train.ErrInterrupted):
		return exitInterrupted
	case errors.As(err, new(usageError)), errors.As(err, new(fault.Fault)),
		errors.As(err, &faults) && !slices.ContainsFunc(faults, config.Fault.InFile):
		return exitUsage
	}
	return exitFailed
}

// lines prints the faults of a config one per line, and every other error in one line.
func lines(err error) []string {
	var faults config.Faults
	if !errors.As(err, &faults) {
		return []string{oneLine(err)}
	}
	var all []string
	for _, f := range faults {
		all = append(all, oneLine(f))
	}
	return all
}

// maxMessage bounds an error's text in bytes: what it quotes of a file may be as long as the file.
const maxMessage = 1000

// oneLine gives an error's text without line ends, and without the system call if it is an error of package os.
func oneLine(err error) string {
	text := err.Error()
	if e, ok := err.(*fs.PathError); ok {
		text = e.Path + ": " + e.Err.Error()
	}
	lines := strings.FieldsFunc(shorten(text), func(r rune) bool { return r == '\n' || r == '\r' })
	return shorten(fault.Escape(strings.Join(lines, " "))) // escaped, a character may be eight
}

func shorten(text string) string {
	if len(text) <= maxMessage {
		return text
	}
	cut := text[:maxMessage*3/4] + " […] " + text[len(text)-maxMessage/4:]
	return strings.ToValidUTF8(cut, "")
}

// usageError is wrong use of the command line.
type usageError struct{ error }
