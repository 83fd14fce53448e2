package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/internal/run"
)

// streams are what a command reads and writes; tests give their own.
type streams struct {
	in       io.Reader
	out, err io.Writer
	answers  io.Writer // gets what a model says: out, but escaped only for a terminal
	colour   io.Writer // out without escaping: for text that is escaped already, and colour
	terminal bool      // err is a terminal, which gets progress bars
	shown    bool      // out is a terminal
}

// reporter makes the reporter of commands that have no flag to silence it.
func (s streams) reporter() run.Reporter { return run.NewReporter(s.err, s.terminal, false) }

// escape escapes control characters in what is printed: tables have names from files.
func (s *streams) escape() {
	escaped := fault.Writer{Out: s.out}
	s.colour = s.out
	if s.answers = s.out; s.shown {
		s.answers = escaped
	}
	s.out = escaped
}

// guard watches both output streams. A command ends as if it were interrupted, so that a run saves itself, when its
// standard output takes no more, or nobody reads its standard error any more.
func (s *streams) guard(ctx context.Context) (guarded context.Context, out *stream) {
	ctx, stop := context.WithCancel(ctx)
	out = &stream{Writer: s.out, terminal: s.shown, counts: func(error) bool { return true }, stop: stop}
	s.out = out
	s.err = &stream{Writer: s.err, terminal: s.terminal, stop: stop,
		counts: func(err error) bool { return errors.Is(err, syscall.EPIPE) }}
	return ctx, out
}

// stream remembers the first error of writing that counts, and then stops the command. A terminal gets lines that fit.
type stream struct {
	io.Writer
	terminal bool
	counts   func(error) bool
	stop     func()

	mu     sync.Mutex
	broken error
}

func (s *stream) Write(p []byte) (int, error) {
	n, err := len(p), error(nil)
	if width := s.width(); width > 0 {
		_, err = io.WriteString(s.Writer, colour(wrap(string(p), width)))
	} else {
		n, err = s.Writer.Write(p)
	}
	if err != nil && s.counts(err) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.broken == nil {
			s.broken = err
		}
		s.stop()
	}
	return n, err
}

// width is a terminal's in characters, at most 0 for anything else.
func (s *stream) width() int {
	if !s.terminal {
		return 0
	}
	width, _, _ := term.GetSize(int(s.Fd())) // -1 with an error
	return width
}

// Fd lets a terminal be asked for its width.
func (s *stream) Fd() uintptr {
	if file, ok := s.Writer.(*os.File); ok {
		return file.Fd()
	}
	return ^uintptr(0)
}

// failure is the error of a standard output that did not take everything.
func (s *stream) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken == nil {
		return nil
	}
	err := s.broken
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err
	}
	return fmt.Errorf("standard output: %w", err)
}

// untilSignal gives the context of the program. The first Ctrl-C, SIGTERM or SIGHUP ends it: the current step is
// finished and saved. The second Ctrl-C or SIGTERM ends the process at once, unless it comes within a second: GNU
// timeout sends SIGTERM to the process and to its group. A second SIGHUP, which a closing terminal sends through the
// shell too, does not. Under nohup no SIGHUP counts. A broken pipe is an error of writing (stream) instead of a signal
// that kills.
func untilSignal() context.Context {
	signal.Ignore(syscall.SIGPIPE)
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		ends = append(ends, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	context.AfterFunc(ctx, func() {
		signal.Ignore(syscall.SIGHUP)
		fmt.Fprintln(os.Stderr, "\nposttrain: finishing the current step; press Ctrl-C again to quit now")
		time.Sleep(time.Second)
		stop()
	})
	return ctx
}
