package run

import (
	"fmt"
	"io"
	"sync"

	"github.com/posttrain/posttrain/internal/config/fault"
)

// Reporter hears what a recipe does. A nil Reporter is silent: see [Listen].
type Reporter interface {
	Say(format string, args ...any)             // one line of what happens
	Warn(format string, args ...any)            // one line of what the user should look at
	Progress(unit string, start, total int) Bar // a bar, or lines, or nothing
}

// Bar shows how far a long job is.
type Bar interface {
	Step(done int, values map[string]float64)
	Part(Part) // of the step that follows the last one
	Notice(line string)
	Close()
}

// Listen returns r, or a silent Reporter for nil.
func Listen(r Reporter) Reporter {
	if r == nil {
		return silence{}
	}
	return r
}

type silence struct{}

func (silence) Say(string, ...any)            {}
func (silence) Warn(string, ...any)           {}
func (silence) Progress(string, int, int) Bar { return silence{} }
func (silence) Step(int, map[string]float64)  {}
func (silence) Part(Part)                     {}
func (silence) Notice(string)                 {}
func (silence) Close()                        {}

// NewReporter prints to out; goroutines may share it and its bars. Quiet leaves only the warnings; a terminal gets
// bars, anything else lines of progress.
func NewReporter(out io.Writer, terminal, quiet bool) Reporter {
	return &printer{out: out, terminal: terminal, quiet: quiet}
}

type printer struct {
	out             io.Writer
	terminal, quiet bool
	mu              sync.Mutex // guards out and open
	open            *Progress  // the newest
}

func (p *printer) Say(format string, args ...any) {
	if !p.quiet {
		p.print(fmt.Sprintf(format, args...))
	}
}

func (p *printer) Warn(format string, args ...any) {
	p.print("warning: " + fmt.Sprintf(format, args...))
}

// print puts a line above an open bar.
func (p *printer) print(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	line = fault.Escape(line)
	if p.open != nil && p.open.bar != nil {
		p.open.printLine(line)
		return
	}
	fmt.Fprintln(p.out, line)
}

func (p *printer) Progress(unit string, start, total int) Bar {
	o := ProgressOptions{Out: p.out, Terminal: p.terminal, Quiet: p.quiet, Unit: unit, Start: start, Total: total}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = NewProgress(o)
	p.open.mu = &p.mu
	return p.open
}
