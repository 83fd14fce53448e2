package privacylens

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/eval/bench"
)

// Write prints the summary as tables for a terminal.
func (s *Summary) Write(w io.Writer) error {
	t := newTable(w)
	if s.All.Cases > 0 {
		t.all(&s.All)
		for _, p := range s.parts() {
			t.part(p)
		}
	}
	if len(s.Probing) > 0 {
		t.addProbes(s.Probing, s.All.Cases > 0)
	}
	if s.All.Cases == publishedCases {
		t.addPublished()
	}
	return t.finish(s.Warnings)
}

// table prints rows of columns that are divided by tabs.
type table struct{ *tabwriter.Writer }

func newTable(w io.Writer) table { return table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)} }

// row prints cells; an error is kept until Flush.
func (t table) row(cells ...string) { fmt.Fprintln(t, strings.Join(cells, "\t")) }

// finish prints what is left, and the warnings below it.
func (t table) finish(warnings []string) error {
	for _, warning := range warnings {
		t.row("warning: " + warning)
	}
	return t.Flush()
}

// all is a line for every measure. Those of what went wrong are left out where nothing did.
func (t table) all(g *Group) {
	line := func(shown bool, name string, value any) {
		if shown {
			t.row(name, strings.TrimSpace(fmt.Sprint(value)))
		}
	}
	judged := g.Helpfulness.Total > 0
	line(true, "leakage rate (LR)", g.Leakage)
	line(judged, "adjusted leakage rate (ALR)", g.Adjusted)
	line(judged, "helpfulness (0 to 3)", g.Helpfulness)
	line(judged, "helpful (2 or 3)", g.Helpful)
	line(!judged, "adjusted leakage rate (ALR)", "not available: helpfulness was not judged")
	line(true, "leaking items", g.Items)
	line(g.NoAction.Total > 0, "no action", g.NoAction)
	line(g.Cut > 0, "cut by length", g.Cut)
	line(g.TooLong > 0, "prompt too long", g.TooLong)
	line(g.Unclosed > 0, "think block never closed", g.Unclosed)
	line(true, "unparsed verdicts", fmt.Sprintf("%d/%d", g.Unparsed, g.Verdicts))
}

// part is a line for every group, if there are several.
func (t table) part(p part) {
	if len(p.Groups) < 2 {
		return
	}
	t.row("")
	t.row("by "+p.Name, "LR", "ALR", "helpfulness")
	for _, g := range p.Groups {
		t.row(safeName(g.Name), short(g.Leakage), short(g.Adjusted), g.Helpfulness.short())
	}
}

// addProbes adds a line for every level, apart from the lines above.
func (t table) addProbes(levels []Probed, below bool) {
	if below {
		t.row("")
	}
	t.row("probing, right answers", "shuffled", "(A) is yes", "(A) is no", "both orders", "benchmark's count",
		"unparsed")
	for _, p := range levels {
		t.row(p.Level, short(p.Shuffled), short(p.YesFirst), short(p.NoFirst), short(p.Both),
			short(p.Benchmark), fmt.Sprint(p.Unparsed))
	}
}

// addPublished adds the published figures.
func (t table) addPublished() {
	t.row("")
	t.row("published: naive / CI-CoT / CI-RL", "LR, %", "ALR, %", "helpfulness")
	for _, p := range PublishedRows {
		cells := p.Cells()
		t.row(append([]string{p.Model}, cells[:]...)...)
	}
	t.row("(" + PublishedSource + ")")
}

// safeName is a name of the data that a terminal can do no harm with.
func safeName(name string) string {
	return data.Beginning(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, name), 50)
}

// short prints a rate for a table of many.
func short(r eval.Share) string {
	if r.Total == 0 {
		return "not available"
	}
	low, high := r.Wilson()
	return fmt.Sprintf("%.1f%% %d/%d (%.1f–%.1f)", 100*r.Value(), r.Count, r.Total, 100*low, 100*high)
}

// short prints the mean for a table of many.
func (m Mean) short() string {
	switch {
	case m.Value == nil:
		return "not available"
	case m.Low == nil:
		return fmt.Sprintf("%.2f %d/%d", *m.Value, m.Sum, m.Total)
	}
	return fmt.Sprintf("%.2f %d/%d (%.2f–%.2f)", *m.Value, m.Sum, m.Total, *m.Low, *m.High)
}

// String is a report, and where it is.
func (s *Summary) String() string {
	var b strings.Builder
	cases := s.All.Cases
	for _, p := range s.Probing {
		cases = max(cases, p.Cases)
	}
	fmt.Fprintf(&b, "PrivacyLens, %d cases of %s: %s\n", cases, shortPath(s.Data), s.whose())
	_ = s.Write(&b) // a Builder takes everything
	if len(s.Results) > 0 && s.Dir != "" {
		fmt.Fprintln(&b, filepath.Join(s.Dir, PageName))
	}
	return b.String()
}

// whose says who was measured, and who judged.
func (s *Summary) whose() string {
	actions, judge := s.Settings[bench.StageAnswers], s.Settings[bench.StageJudge]
	if len(s.Probing) > 0 {
		return shortPath(actions["model"]) + ", probed"
	}
	who, by := "no actions", judge["kind"]
	switch {
	case actions["kind"] == bench.Recorded:
		who = "recorded actions"
	case actions != nil:
		who = shortPath(actions["model"]) + ", prompt " + actions["prompt"]
	}
	switch by {
	case KindModel:
		by = judge["model"]
	case KindReplay:
		by = "recorded verdicts"
	}
	return who + "; judge: " + by
}

// shortPath is a path from the working directory, if it lies within that.
func shortPath(path string) string {
	if here, err := os.Getwd(); err == nil {
		if within, ok := strings.CutPrefix(path, here+string(filepath.Separator)); ok {
			return within
		}
	}
	return path
}
