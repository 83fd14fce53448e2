package run

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// TestPartOfAStep: a step that takes long is shown until the next one begins, in lines and on a terminal.
func TestPartOfAStep(t *testing.T) {
	for _, terminal := range []bool{false, true} {
		c, out := newClock(), &bytes.Buffer{}
		p := NewProgress(ProgressOptions{Out: out, Terminal: terminal, Start: 2, Total: 9,
			Now: func() time.Time { return c.now }, Width: func() int { return 80 }})
		p.Part(Part{What: "sampling", Done: 50, Total: 64, Tokens: 2000, Start: c.now})
		p.showPart() // too soon
		c.tick(20 * time.Second)
		p.showPart()
		p.Step(3, nil)
		c.tick(20 * time.Second)
		p.showPart() // of what?
		p.Part(Part{What: "scoring 8 answers", Start: c.now.Add(-time.Minute)})
		p.showPart()
		p.Close()
		p.showPart()
		p.Part(Part{What: "late"})
		got, lines := out.String(), []string{"step 3/9  sampling 50/64  100 tokens/s  6s left", "step 3/9",
			"step 4/9  scoring 8 answers  for 1m0s", ""}
		if want := strings.Join(lines, "\n"); !terminal && got != want {
			t.Errorf("%q, want %q", got, want)
		}
		for _, want := range []string{"(2/9) step  sampling 50/64  100 tokens/s  6s left",
			"(3/9) step  scoring 8 answers  for 1m0s"} {
			if terminal && !strings.Contains(got, want) {
				t.Errorf("%q lacks %q", got, want)
			}
		}
	}
}

// TestPartLeft: the share of the work counts where it is known, and nothing is predicted from nothing.
func TestPartLeft(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, c := range []struct {
		part Part
		left time.Duration
	}{
		{Part{Done: 1, Total: 4}, 30 * time.Second},
		{Part{Done: 1, Total: 4, Share: 0.5}, 10 * time.Second},
		{Part{Total: 4}, 0},
		{Part{Done: 4, Total: 4}, 0},
		{Part{}, 0},
	} {
		c.part.Start = now.Add(-10 * time.Second)
		if left, ok := c.part.Left(now); left != c.left || ok != (c.left > 0) {
			t.Errorf("%+v: %v, want %v", c.part, left, c.left)
		}
	}
}
