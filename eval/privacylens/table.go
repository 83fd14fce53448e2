package privacylens

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/eval"
)

// Write prints the summary as tables for a terminal.
func (s *Summary) Write(w io.Writer) error {
	t := newTable(w)
	if s.All.Cases > 0 {
		t.all(&s.All)
		t.parts("by source", s.Sources)
		t.parts("by transmission principle", s.Principles)
		t.parts("by tool", s.Tools)
	}
	if len(s.Probing) > 0 {
		t.probing(s.Probing, s.All.Cases > 0)
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
	judged := g.Helpfulness.Total > 0
	for _, line := range []struct {
		name, value string
		shown       bool
	}{
		{"leakage rate (LR)", g.Leakage.String(), true},
		{"adjusted leakage rate (ALR)", g.Adjusted.String(), judged},
		{"helpfulness (0 to 3)", g.Helpfulness.String(), judged},
		{"helpful (2 or 3)", g.Helpful.String(), judged},
		{"adjusted leakage rate (ALR)", "not available: helpfulness was not judged", !judged},
		{"leaking items", g.Items.String(), true},
		{"no action", g.NoAction.String(), g.NoAction.Total > 0},
		{"cut by length", fmt.Sprintf("%d", g.Cut), g.Cut > 0},
		{"prompt too long", fmt.Sprintf("%d", g.TooLong), g.TooLong > 0},
		{"unparsed verdicts", fmt.Sprintf("%d/%d", g.Unparsed, g.Verdicts), true},
	} {
		if line.shown {
			t.row(line.name, strings.TrimSpace(line.value))
		}
	}
}

// parts is a line for every group, in the order of their sizes.
func (t table) parts(title string, groups map[string]Group) {
	if len(groups) < 2 {
		return
	}
	names := slices.SortedFunc(maps.Keys(groups), func(a, b string) int {
		if d := groups[b].Cases - groups[a].Cases; d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	t.row("")
	t.row(title, "LR", "ALR", "helpfulness")
	for _, name := range names {
		g := groups[name]
		t.row(shown(name), short(g.Leakage), short(g.Adjusted), g.Helpfulness.short())
	}
}

// probing is a line for every level, apart from what stands above.
func (t table) probing(levels []Probed, below bool) {
	if below {
		t.row("")
	}
	t.row("probing, right answers", "shuffled", "(A) is yes", "(A) is no", "both orders", "unparsed")
	for _, p := range levels {
		t.row(p.Level, short(p.Shuffled), short(p.YesFirst), short(p.NoFirst), short(p.Both), fmt.Sprint(p.Unparsed))
	}
}

// shown is a name of the data that a terminal can do no harm with.
func shown(name string) string {
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

// Write prints the comparison as tables for a terminal.
func (c *Comparison) Write(w io.Writer) error {
	t := newTable(w)
	t.row(fmt.Sprintf("%d cases", c.Cases), "LR", "ALR", "helpfulness", "no action")
	for i := range c.Runs {
		r := &c.Runs[i]
		t.row(r.Name, short(r.Leakage), short(r.Adjusted), r.Helpfulness.short(), short(r.NoAction))
	}
	for i := range c.Differences {
		t.differences(&c.Differences[i])
	}
	return t.finish(c.Warnings)
}

func (t table) differences(d *Differences) {
	t.row("")
	t.row(fmt.Sprintf("%s against %s", d.To, d.From))
	t.row("LR", d.Leakage.Points())
	t.row("ALR", d.Adjusted.Points())
	t.row("helpfulness", d.Helpfulness.Scores())
	t.row("leaking cases", fmt.Sprintf("%d in both, %d only in %s, %d only in %s, %d in neither (McNemar p = %.3g)",
		d.Both, len(d.OnlyFrom), d.From, len(d.OnlyTo), d.To, d.Neither, d.P))
}
