package inspect

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/check"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/data/privacylens"
	"github.com/posttrain/posttrain/data/records"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe"
)

// Stats describes a file in lines, and draws the lengths of its texts, and the gaps of pairs with scores, into the .png
// file out; "" draws nothing.
func Stats(ctx context.Context, path, out string, o Options) ([]string, error) {
	if faults := o.Check(); len(faults) > 0 {
		return nil, faults[0]
	}
	if out != "" && strings.ToLower(filepath.Ext(out)) != ".png" {
		return nil, fault.Fault{Key: "out", Value: out, Problem: "want a file .png"}
	}
	o.Near, o.Balance, o.Model, o.Fix = 0, 0, "", ""
	report, err := o.file(ctx, path)
	if err != nil {
		return nil, err
	}
	kind := records.Kinds[o.Kind]
	if kind == 0 {
		if kind, err = records.KindOf(path, o.PreferenceOptions); err != nil {
			return nil, err
		}
	}
	lengths, err := measure(ctx, path, kind, o.PreferenceOptions)
	if err != nil {
		return nil, err
	}
	if report.Kept == 0 {
		return nil, fmt.Errorf("%s: no row can be read: data check says why", path)
	}
	lines := slices.Concat(report.Lines()[:2+len(report.Profile)], lengths.lines())
	if out == "" {
		return lines, nil
	}
	return append(lines, "drawn: "+out), run.Curves(out, filepath.Base(path), panels(lengths, report))
}

// lengths count the characters of texts by their names, in the order in which these come.
type lengths struct {
	names  []string
	counts map[string]map[int]int // texts by name and characters
}

func (l *lengths) add(name, text string) {
	if l.counts[name] == nil {
		l.names = append(l.names, name)
		l.counts[name] = map[int]int{}
	}
	l.counts[name][utf8.RuneCountInString(text)]++
}

// measure counts the texts of a file; rows that cannot be read are left out.
func measure(ctx context.Context, path string, kind records.Kind, o data.PreferenceOptions) (*lengths, error) {
	l := &lengths{counts: map[string]map[int]int{}}
	switch kind {
	case records.KindCI:
		return l, each(ctx, ci.Stream(path), l.item)
	case records.KindPreference:
		pairs, err := data.StreamPreferences(path, o)
		if err != nil {
			return nil, err
		}
		return l, each(ctx, pairs, func(p data.Preference) {
			l.add("prompt", p.Prompt.Words())
			l.add("chosen", p.Chosen.Words())
			l.add("rejected", p.Rejected.Words())
		})
	case records.KindLabelled:
		return l, each(ctx, data.StreamLabelled(path), func(all []data.Labelled) {
			for _, a := range all {
				l.demonstration(a.Demonstration)
			}
		})
	case records.KindCase:
		return l, each(ctx, privacylens.Stream(path), func(c privacylens.Case) {
			l.add("story", c.Vignette.Story)
			l.add("instruction", c.Trajectory.Instruction)
			l.add("trajectory", c.Trajectory.Past)
		})
	}
	return l, each(ctx, data.StreamDemonstrations(path), l.demonstration)
}

func each[T any](ctx context.Context, s *data.Stream[T], visit func(T)) error {
	_, err := s.Lenient(func(string, error) {}).Each(func(record T) error {
		visit(record)
		return ctx.Err()
	})
	if errors.Is(err, context.Canceled) {
		err = fmt.Errorf("%w: nothing was written", recipe.ErrInterrupted)
	}
	return err
}

func (l *lengths) demonstration(d data.Demonstration) {
	l.add("prompt", d.Prompt.Words())
	l.add("completion", d.Completion.Words())
}

func (l *lengths) item(item ci.Item) {
	l.add("user task", item.DatasetItem.UserTask)
	for _, f := range item.DatasetItem.Information {
		l.add("information", f.Text)
	}
	for _, word := range item.Required() {
		l.add("required keyword", word)
	}
	for _, word := range item.Restricted() {
		l.add("restricted keyword", word)
	}
}

func (l *lengths) lines() (lines []string) {
	for _, name := range l.names {
		n, sum := 0, 0
		for length, count := range l.counts[name] {
			n, sum = n+count, sum+length*count
		}
		q := func(share float64) int { return quantile(l.counts[name], share) }
		lines = append(lines, fmt.Sprintf("  %s: %d texts; characters: mean %.1f, median %d, 5 %% up to %d, 95 %% up to %d, "+
			"longest %d", name, n, float64(sum)/float64(n), q(0.5), q(0.05), q(0.95), q(1)))
	}
	return lines
}

// quantile is the least length up to which a share of the texts have.
func quantile(counts map[int]int, share float64) int {
	n := 0
	for _, count := range counts {
		n += count
	}
	seen, at := 0, 0
	for _, at = range slices.Sorted(maps.Keys(counts)) {
		if seen += counts[at]; float64(seen) >= share*float64(n) {
			break
		}
	}
	return at
}

// panels are histograms: of lengths, one for each name, and of the gaps of pairs.
func panels(l *lengths, report *check.Report) (all []run.Panel) {
	for _, name := range l.names {
		counts := l.counts[name]
		const bins = 40
		width := (quantile(counts, 0.99) + bins) / bins
		var heights [bins]int
		for length, count := range counts {
			if bin := length / width; bin < bins {
				heights[bin] += count
			}
		}
		all = append(all, run.Panel{Label: "texts", X: "characters, without the longest hundredth",
			Lines: []run.Line{outline(name, float64(width), heights[:])}})
	}
	if report.Gaps != nil {
		all = append(all, run.Panel{Label: "pairs", X: "gap of the rewards",
			Lines: []run.Line{outline("pairs with scores", 0.1, report.Gaps.Tenths[:])}})
	}
	return all
}

// outline is the outline of bars of a width.
func outline(name string, width float64, heights []int) run.Line {
	l := run.Line{Name: name}
	for i, n := range heights {
		l.X = append(l.X, float64(i)*width, float64(i+1)*width)
		l.Y = append(l.Y, float64(n), float64(n))
	}
	return l
}
