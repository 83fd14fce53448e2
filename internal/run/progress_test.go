package run

import (
	"bytes"
	"io"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// clock is a time that a test controls.
type clock struct{ now time.Time }

func (c *clock) tick(d time.Duration) { c.now = c.now.Add(d) }

func newClock() *clock { return &clock{now: time.Unix(1_000_000, 0)} }

func TestPlainProgress(t *testing.T) {
	c, out := newClock(), &bytes.Buffer{}
	p := NewProgress(ProgressOptions{Out: out, Total: 9, Every: 4, Interval: 10 * time.Second,
		Now: func() time.Time { return c.now }})
	for step := 1; step <= 9; step++ {
		switch step {
		case 1:
			c.tick(30 * time.Second) // compilation: predicts nothing
		case 6:
			c.tick(10 * time.Second) // a slow one: printed although it is not a fourth step
		default:
			c.tick(2 * time.Second)
		}
		p.Step(step, map[string]float64{"loss": 0.7 / float64(step), "rewards/margins": 0.25 * float64(step-1),
			"tokens_per_second": 1234.4, "logps/chosen": -14})
		if step == 4 {
			p.Notice("step 4: eval_loss 0.5000")
		}
	}
	p.Close()
	want := `step 1/9  loss 0.7000  margin 0.0000  1234 tokens/s
step 4/9  loss 0.1750  margin 0.7500  1234 tokens/s  10s left
step 4: eval_loss 0.5000
step 6/9  loss 0.1167  margin 1.2500  1234 tokens/s  11s left
step 8/9  loss 0.0875  margin 1.7500  1234 tokens/s  3s left
step 9/9  loss 0.0778  margin 2.0000  1234 tokens/s
`
	if got := out.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestPlainProgressOfAResumedRun(t *testing.T) {
	c, out := newClock(), &bytes.Buffer{}
	p := NewProgress(ProgressOptions{Out: out, Start: 90, Total: 100, Every: 5, Now: func() time.Time { return c.now }})
	for step := 91; step <= 95; step++ {
		c.tick(time.Second)
		p.Step(step, map[string]float64{"loss": math.NaN(), "reward": -1e-7})
	}
	want := "step 91/100  loss NaN  reward -1.00e-07\nstep 95/100  loss NaN  reward -1.00e-07  5s left\n"
	if got := out.String(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestPlainProgressOfAnotherUnit(t *testing.T) {
	c, out := newClock(), &bytes.Buffer{}
	p := NewProgress(ProgressOptions{Out: out, Unit: "pair", Total: 2, Now: func() time.Time { return c.now }})
	p.Step(1, nil)
	p.Step(2, nil)
	if got, want := out.String(), "pair 1/2\npair 2/2\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestProgressBar(t *testing.T) {
	c, out := newClock(), &bytes.Buffer{}
	p := NewProgress(ProgressOptions{Out: out, Terminal: true, Total: 40, Now: func() time.Time { return c.now }})
	if !strings.Contains(out.String(), "(0/40)") {
		t.Errorf("no empty bar: %q", out.String())
	}
	for step := 1; step <= 40; step++ {
		c.tick(50 * time.Millisecond)
		out.Reset()
		p.Step(step, map[string]float64{"loss": 0.5, "rewards/margins": 0.125, "tokens_per_second": 999})
		checkBar(t, step, out.String())
	}
	out.Reset()
	p.Close()
	p.Close()
	if out.String() != "\n" {
		t.Errorf("closed with %q", out.String())
	}
}

// checkBar checks the screen after a step. Every second step is too soon to redraw.
func checkBar(t *testing.T, step int, got string) {
	t.Helper()
	if step%2 == 0 && step < 40 {
		if got != "" {
			t.Errorf("step %d: redrawn after 50 ms: %q", step, got)
		}
		return
	}
	want := []string{"/40)", "loss 0.5000  margin 0.1250  999 tokens/s",
		map[bool]string{true: "left"}[step > 1 && step < 40]}
	if step == 21 {
		want = append(want, "(21/40)", "52%", "1s left")
	}
	if step == 40 {
		want = append(want, "(40/40)", "100%")
	}
	for _, w := range want {
		if !strings.Contains(got, w) {
			t.Errorf("step %d: %q lacks %q", step, got, w)
		}
	}
	if strings.Contains(got, "\n") {
		t.Errorf("step %d: %q leaves its line", step, got)
	}
}

func TestProgressBarNotice(t *testing.T) {
	c, out := newClock(), &bytes.Buffer{}
	p := NewProgress(ProgressOptions{Out: out, Terminal: true, Start: 5, Total: 10,
		Now: func() time.Time { return c.now }})
	if !strings.Contains(out.String(), "(5/10)") {
		t.Errorf("a resumed bar begins with %q", out.String())
	}
	p.Step(6, map[string]float64{"loss": 1})
	out.Reset()
	p.Notice("saved")
	cleared, after, ok := strings.Cut(out.String(), "saved\n")
	if !ok || !strings.HasSuffix(cleared, "\033[2K\r") || !strings.Contains(after, "(6/10)") ||
		!strings.Contains(after, "loss 1.0000") {
		t.Errorf("%q", out.String())
	}
}

// TestFinishedBar: a line after the last step leaves the bar on the screen.
func TestFinishedBar(t *testing.T) {
	out := &bytes.Buffer{}
	p := NewProgress(ProgressOptions{Out: out, Terminal: true, Total: 1, Width: func() int { return 80 }})
	p.Step(1, nil)
	p.Notice("saved")
	p.Close()
	if got := out.String(); !strings.HasSuffix(got, "(1/1) step   \x1b[0K\nsaved\n") {
		t.Errorf("%q", got)
	}
}

func TestQuietProgress(t *testing.T) {
	for _, terminal := range []bool{true, false} {
		out := &bytes.Buffer{}
		p := NewProgress(ProgressOptions{Out: out, Terminal: terminal, Quiet: true, Total: 2})
		p.Step(1, map[string]float64{"loss": 1})
		p.Notice("saved")
		p.Step(2, nil)
		p.Close()
		if out.Len() > 0 {
			t.Errorf("terminal %v: %q", terminal, out.String())
		}
	}
}

func TestProgressOfNothing(t *testing.T) {
	p := NewProgress(ProgressOptions{Out: io.Discard, Terminal: true})
	p.Step(1, nil)
	p.Close()
}

// TestWordsThatFit: the time left stays longest, then the speed.
func TestWordsThatFit(t *testing.T) {
	words := "step  loss 0.6931  margin 0.0000  12345 tokens/s  1h2m3s left"
	for room, want := range map[int]string{
		100: words,
		48:  "step  loss 0.6931  12345 tokens/s  1h2m3s left",
		40:  "step  12345 tokens/s  1h2m3s left",
		20:  "step  1h2m3s left",
		10:  "step",
		3:   "",
	} {
		if got := fit(words, room); got != want {
			t.Errorf("room %d: %q, want %q", room, got, want)
		}
	}
}

// On a narrow terminal the last words disappear, but for the speed, and the bar gets shorter.
func TestProgressBarFits(t *testing.T) {
	values := map[string]float64{"leaks": 64, "requests": 1312, "cost": 0.4773, "unparsed": 7,
		"tokens_per_second": 1234}
	for width, want := range map[int]string{
		200: "case  leaks 64  requests 1312  cost 0.4773  unparsed 7  1234 tokens/s",
		80:  "case  leaks 64  requests 1312  1234 tokens/s",
		60:  "case  leaks 64  1234 tokens/s",
		20:  "",
	} {
		out := &bytes.Buffer{}
		p := NewProgress(ProgressOptions{Out: out, Terminal: true, Unit: "case", Total: 493,
			Width: func() int { return width }})
		p.Step(123, values)
		pictures := strings.Split(out.String(), "\r")
		last := strings.NewReplacer("\x1b[0K", "", "\x1b[2K", "").Replace(pictures[len(pictures)-1])
		if _, words, _ := strings.Cut(last, "(123/493)"); strings.TrimSpace(words) != want {
			t.Errorf("width %d: %q, want %q", width, words, want)
		}
		if n := utf8.RuneCountInString(last); width >= 60 && n > width {
			t.Errorf("width %d: %d characters: %q", width, n, last)
		}
	}
}
