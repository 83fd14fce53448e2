package run

import (
	"bytes"
	"strings"
	"testing"
)

// report does what a recipe does with a Reporter.
func report(r Reporter) {
	r.Say("reads %d pairs", 2)
	bar := r.Progress("pair", 0, 2)
	bar.Step(1, map[string]float64{"loss": 1})
	r.Warn("pair %d is long", 1)
	bar.Notice("half")
	bar.Step(2, nil)
	bar.Close()
	r.Say("done")
}

func TestReporterPrintsLines(t *testing.T) {
	for quiet, want := range map[bool]string{
		false: "reads 2 pairs\npair 1/2  loss 1.0000\nwarning: pair 1 is long\nhalf\npair 2/2\ndone\n",
		true:  "warning: pair 1 is long\n",
	} {
		var out bytes.Buffer
		report(NewReporter(&out, false, quiet))
		got := strings.ReplaceAll(out.String(), "  0s left", "")
		if got != want {
			t.Errorf("quiet %v: got\n%swant\n%s", quiet, got, want)
		}
	}
}

// TestReporterKeepsTheBar: a line that comes while a bar is open goes above it, and the bar is drawn again.
func TestReporterKeepsTheBar(t *testing.T) {
	var out bytes.Buffer
	report(NewReporter(&out, true, false))
	before, after, ok := strings.Cut(out.String(), "warning: pair 1 is long\n")
	if !ok || !strings.HasSuffix(before, "\033[2K\r") || !strings.Contains(after, "(1/2)") {
		t.Errorf("%q", out.String())
	}
}

func TestListenToNobody(t *testing.T) {
	report(Listen(nil))
	r := NewReporter(&bytes.Buffer{}, false, false)
	if Listen(r) != r {
		t.Error("Listen changed a Reporter that is not nil")
	}
}
