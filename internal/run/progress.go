package run

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/posttrain/posttrain/internal/float"
)

// ProgressOptions say where and how often progress is shown.
type ProgressOptions struct {
	Out      io.Writer        // usually standard error
	Terminal bool             // Out is a terminal: draw a bar instead of lines
	Quiet    bool             // print nothing
	Unit     string           // of the count, such as pair; "": step
	Start    int              // steps that a resumed run has behind it
	Total    int              // steps of the whole run
	Every    int              // steps between lines; 0: a twentieth of the run
	Interval time.Duration    // longest time between lines; 0: half a minute
	Now      func() time.Time // the clock; nil: time.Now
	Width    func() int       // of the terminal in characters; nil: Out's
}

// redraw is the shortest time between two pictures of the bar.
const redraw = 100 * time.Millisecond

// shown are the metrics that progress shows if a step has them, with their labels.
var shown = []struct {
	name, label string
	words       func(float64) string
}{
	{"loss", "loss", short},
	{"rewards/margins", "margin", short},
	{"reward", "reward", short},
	{"complete", "complete", short},
	{"return", "return", short},
	{"refused", "refused", whole},
	{"leaks", "leaks", whole},
	{"requests", "requests", whole},
	{"cost", "cost", short},
	{"unparsed", "unparsed", whole},
}

// Progress shows how far a run is: a bar on a terminal, lines elsewhere. It implements [Bar]; goroutines may share it.
type Progress struct {
	o      ProgressOptions
	mu     *sync.Mutex              // guards what follows, and the output
	bar    *progressbar.ProgressBar // nil: lines
	done   int                      // of the last Step
	first  time.Time                // the end of the first step, which includes compilation and so predicts nothing
	from   int                      // the first step
	last   time.Time                // of the last output
	begun  bool
	closed bool
	part   Part          // of the running step
	beat   time.Duration // between two looks at the part
	pulse  *time.Timer   // of them; nil before the first part
}

// NewProgress starts a display. On a terminal the empty bar appears at once.
func NewProgress(o ProgressOptions) *Progress {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Width == nil {
		o.Width = func() int { return widthOf(o.Out) }
	}
	o.Unit = cmp.Or(o.Unit, "step")
	o.Every = cmp.Or(o.Every, max(1, o.Total/20))
	o.Interval = cmp.Or(o.Interval, 30*time.Second)
	p := &Progress{o: o, mu: new(sync.Mutex), last: o.Now(), done: o.Start, beat: 10 * time.Second}
	if o.Terminal && !o.Quiet && o.Total > 0 {
		p.bar, p.beat = newBar(o), time.Second
	}
	return p
}

func newBar(o ProgressOptions) *progressbar.ProgressBar {
	bar := progressbar.NewOptions(o.Total,
		progressbar.OptionSetWriter(o.Out),
		progressbar.OptionUseANSICodes(true),
		progressbar.OptionSetWidth(cells(o.Width())),
		progressbar.OptionShowCount(),
		progressbar.OptionSetPredictTime(false), // ours leaves compilation out
		progressbar.OptionSetElapsedTime(false),
		progressbar.OptionShowDescriptionAtLineEnd(),
	)
	// An error of the terminal is not a reason to stop a run.
	if o.Start > 0 {
		_ = bar.Set(o.Start)
	} else {
		_ = bar.RenderBlank()
	}
	return bar
}

// Step reports the number of steps done and the last one's metrics, of which it shows some and tokens_per_second. A
// second report of the same number is for the bar alone.
func (p *Progress) Step(step int, values map[string]float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.o.Quiet || p.bar == nil && p.begun && step == p.done {
		return
	}
	p.done, p.part = step, Part{}
	now := p.o.Now()
	if !p.begun {
		p.first, p.from = now, step
	}
	if p.due(step, now) {
		p.show(step, p.words(step, values, now))
		p.last = now
	}
	p.begun = true
}

// Part implements [Bar]. It is shown where nothing else was for a while, which is shorter on a terminal.
func (p *Progress) Part(part Part) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.part = part; p.pulse == nil && !p.o.Quiet && !p.closed {
		p.pulse = time.AfterFunc(p.beat, p.showPart)
	}
}

// showPart shows the running step, which a line counts as if it were done, unless something was shown just now.
func (p *Progress) showPart() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.pulse.Reset(p.beat)
	now, step := p.o.Now(), p.done
	if p.part.What == "" || now.Sub(p.last) < p.beat*3/2 {
		return
	}
	if p.bar == nil {
		step = min(step+1, p.o.Total)
	}
	p.last = now
	p.show(step, p.part.words(now))
}

// due reports whether to print a step. The first and the last are always printed.
func (p *Progress) due(step int, now time.Time) bool {
	since := now.Sub(p.last)
	switch {
	case !p.begun || step >= p.o.Total:
		return true
	case p.bar != nil:
		return since >= redraw
	}
	return step%p.o.Every == 0 || since >= p.o.Interval
}

func (p *Progress) show(step int, words string) {
	if p.bar == nil {
		fmt.Fprintln(p.o.Out, strings.TrimSpace(fmt.Sprintf("%s %d/%d  %s", p.o.Unit, step, p.o.Total, words)))
		return
	}
	p.bar.Describe(fit(p.o.Unit+"  "+words, p.o.Width()-cells(p.o.Width())-aroundBar))
	_ = p.bar.Set(step)
}

// aroundBar is the width of percentage and count beside the bar.
const aroundBar = 22

// cells is the bar's length on a terminal of the given width.
func cells(width int) int { return min(max(6, width/8), 24) }

// fit removes words, the last ones first, until the others fit: of speed and time left, only if these are all. Two
// spaces separate them.
func fit(words string, room int) string {
	parts := strings.Split(words, "  ")
	for len(parts) > 0 && utf8.RuneCountInString(strings.Join(parts, "  ")) > room {
		at := len(parts) - 1
		for at > 1 && (strings.HasSuffix(parts[at], " left") || strings.HasSuffix(parts[at], " tokens/s")) {
			at--
		}
		parts = slices.Delete(parts, at, at+1)
	}
	return strings.Join(parts, "  ")
}

// widthOf is a terminal's width, and 1000 if out is not a terminal.
func widthOf(out io.Writer) int {
	if file, ok := out.(interface{ Fd() uintptr }); ok {
		if width, _, err := term.GetSize(int(file.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return 1000
}

// words are the metrics, the speed and the remaining time.
func (p *Progress) words(step int, values map[string]float64, now time.Time) string {
	var parts []string
	for _, s := range shown {
		if v, ok := values[s.name]; ok {
			parts = append(parts, s.label+" "+s.words(v))
		}
	}
	if v, ok := values["tokens_per_second"]; ok && float.IsFinite(v) {
		parts = append(parts, fmt.Sprintf("%.0f tokens/s", v))
	}
	if left, ok := p.timeLeft(step, now); ok {
		parts = append(parts, left.String()+" left")
	}
	return strings.Join(parts, "  ")
}

// timeLeft predicts the time that is left from the steps after the first.
func (p *Progress) timeLeft(step int, now time.Time) (time.Duration, bool) {
	done := step - p.from
	if !p.begun || done <= 0 || step >= p.o.Total {
		return 0, false
	}
	left := float64(now.Sub(p.first)) / float64(done) * float64(p.o.Total-step)
	return time.Duration(math.Round(left/float64(time.Second))) * time.Second, true
}

// short writes a number in about six characters.
func short(v float64) string {
	if a := math.Abs(v); a >= 1e4 || a > 0 && a < 1e-3 {
		return fmt.Sprintf("%.2e", v)
	}
	return fmt.Sprintf("%.4f", v)
}

// whole writes a count.
func whole(v float64) string { return fmt.Sprintf("%.0f", v) }

// Notice prints a line between the steps; the bar continues below it.
func (p *Progress) Notice(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.printLine(line)
}

func (p *Progress) printLine(line string) {
	if p.o.Quiet {
		return
	}
	if p.bar == nil {
		fmt.Fprintln(p.o.Out, line)
		return
	}
	if p.bar.IsFinished() { // it stays above the line
		fmt.Fprintf(p.o.Out, "\n%s\n", line)
		p.bar = nil
		return
	}
	_ = p.bar.Clear()
	fmt.Fprintln(p.o.Out, line)
	_ = p.bar.Add(0)
}

// Close leaves the bar on the screen and starts a new line. A second call does nothing.
func (p *Progress) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed = true; p.pulse != nil {
		p.pulse.Stop()
	}
	if p.bar == nil {
		return
	}
	_ = p.bar.Exit()
	p.bar = nil
	fmt.Fprintln(p.o.Out)
}
