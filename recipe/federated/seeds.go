package federated

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe"
)

// runSeeds simulates the run once for each seed, in the folders seed-N, and reports their means. What has ended there
// is not run again.
func runSeeds(ctx context.Context, s Simulation, r run.Reporter) (*Result, error) {
	folder, err := s.Dir.Open(Command, Spec.Resolve(&s))
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	defer s.Close()
	var sides [][]Side // by method and seed
	var task string
	for i := range s.Seeds {
		one := s
		one.Seeds, one.Seed, one.ignored = 0, s.Seed+uint64(i), nil
		name := fmt.Sprint("seed-", one.Seed)
		r.Say("%s, run %d of %d", name, i+1, s.Seeds)
		one.Dir = recipe.RunDir{Out: folder.Path(name)}
		if _, err := os.Stat(folder.Path(filepath.Join(name, "config.yaml"))); err == nil {
			one.Dir = recipe.RunDir{Resume: folder.Path(name)}
		}
		if !run.Finished(folder.Path(name)) {
			_, err = Run(ctx, one, r)
		}
		if stopped := (*recipe.Stopped)(nil); errors.As(err, &stopped) {
			where := fmt.Sprintf("in run %d of %d, %s", i+1, s.Seeds, stopped.Where)
			return nil, &recipe.Stopped{Where: where, Dir: folder.Dir}
		}
		if errors.Is(err, protocol.ErrStuck) { // a policy that is certain of every action has no gradient left
			r.Warn("%s: %v; its returns so far count", name, err)
			err = nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		of, err := one.read(folder.Path(name))
		if err != nil {
			return nil, err
		}
		for m, side := range of {
			if len(sides) <= m {
				sides = append(sides, nil)
			}
			sides[m] = append(sides[m], side)
		}
	}
	if t, err := s.task(); err == nil {
		task = t.Identity().Task
	}
	return s.reportSeeds(folder, task, sides)
}

// read gives the sides of a run that has ended, without its model.
func (s *Simulation) read(dir string) (sides []Side, err error) {
	for _, of := range []struct{ method, file string }{{s.Method, "metrics.jsonl"}, {s.Compare, compareName}} {
		records, err := run.ReadMetrics(filepath.Join(dir, of.file))
		if of.method == none || errors.Is(err, os.ErrNotExist) {
			continue // a run that got stuck has no comparison
		}
		if err != nil {
			return nil, err
		}
		m := simulating{Simulation: *s}
		m.Method = of.method
		sides = append(sides, m.side(records))
	}
	return sides, nil
}

// seeded is what the seeds of a method came to: means, with half their 95% intervals by Student's t.
type seeded struct {
	Method string `json:"method"`
	Return mean   `json:"return"` // of the last updates
	First  mean   `json:"first_return"`
	Runs   []Side `json:"runs"`
}

// mean is over the seeds in which an episode ended.
type mean struct {
	Mean *float64  `json:"mean"` // null: in none did
	Half float64   `json:"half_interval"`
	Each []float64 `json:"each"`
}

func meanOf(sides []Side, of func(Side) Spread) mean {
	each := []float64{}
	for _, s := range sides {
		if r := of(s); r.Count > 0 {
			each = append(each, r.Mean)
		}
	}
	m, half := run.MeanInterval(each)
	return mean{eval.Finite(m), half, each}
}

// text says how many of the seeds count, where some do not.
func (m mean) text(sign string, like *float64, seeds int) string {
	if len(m.Each) == 0 {
		return Spread{}.String()
	}
	text := run.Interval(form(*like, sign), m.Each)
	if n := len(m.Each); n < seeds {
		text += fmt.Sprintf(" (%d of %d seeds: no episode ended in the others)", n, seeds)
	}
	return text
}

// reportSeeds writes picture and summaries.
func (s *Simulation) reportSeeds(folder *run.Folder, task string, sides [][]Side) (*Result, error) {
	var all []seeded
	var text strings.Builder
	fmt.Fprintf(&text, "%s on %s, %s, %d seeds from %d on: means ± 95%% intervals (Student's t).\n", s.Method, task,
		recipe.Count(s.Agents, "agent"), s.Seeds, s.Seed)
	fmt.Fprintf(&text, "%-12s %6s %9s %10s %11s %11s  %s\n", "", "seeds", "samples", "time (s)", "sent up", "sent down",
		"return at the end")
	for _, of := range sides {
		one := seeded{of[0].Method, meanOf(of, func(s Side) Spread { return s.Return }),
			meanOf(of, func(s Side) Spread { return s.First }), of}
		at := func(number func(Side) float64) float64 {
			total := 0.0
			for _, s := range of {
				total += number(s)
			}
			return total / float64(len(of))
		}
		fmt.Fprintf(&text, "%-12s %6d %9.0f %10.1f %11s %11s  %s\n", one.Method, len(of),
			at(func(s Side) float64 { return float64(s.Samples) }), at(func(s Side) float64 { return s.Time }),
			bytesText(int64(at(func(s Side) float64 { return float64(s.Up) }))),
			bytesText(int64(at(func(s Side) float64 { return float64(s.Down) }))),
			one.Return.text("", one.Return.Mean, len(of)))
		all = append(all, one)
	}
	if len(all) == 2 && len(all[0].Runs) == len(all[1].Runs) {
		both := mean{}
		for i, x := range all[0].Runs {
			if y := all[1].Runs[i]; x.Return.Count > 0 && y.Return.Count > 0 {
				both.Each = append(both.Each, x.Return.Mean-y.Return.Mean)
			}
		}
		fmt.Fprintf(&text, "Return at the end, %s less %s, by seed: %s\n", all[0].Method, all[1].Method,
			both.text("+", all[0].Return.Mean, s.Seeds))
	}
	fmt.Fprintf(&text, "Runs: %s\nCurves: %s\n", folder.Path("seed-*"), folder.Path("curves.png"))
	title := fmt.Sprintf("%s on %s, %s, %d seeds with 95%% bands (posttrain %s)", s.Method, task,
		recipe.Count(s.Agents, "agent"), s.Seeds, Command)
	file := map[string]any{"command": Command, "task": task, "agents": s.Agents, "seed": s.Seed, "seeds": s.Seeds,
		"times": s.times(), "methods": all}
	return &Result{Dir: folder.Dir, Summary: text.String()}, errors.Join(folder.WritePanels(title, s.bands(sides)),
		folder.WriteSummaryJSON(file), folder.WriteSummary(text.String()))
}

// form prints returns, or rewards, which are small.
func form(of float64, sign string) string {
	if math.Abs(of) < 5 {
		return "%" + sign + ".3f"
	}
	return "%" + sign + ".1f"
}

// bands are the panels of a run with the means of all seeds as lines, each with its 95% band.
func (s *Simulation) bands(sides [][]Side) (drawn []run.Panel) {
	for _, of := range sides {
		var all []run.Panel // with a line of each seed that has one: without a step there is no KL
		for _, side := range of {
			if protocol.Asynchronous(side.Method) {
				side.records = blocks(side.records, s.Agents)
			}
			for _, p := range panels([]Side{side}, s.Agents) {
				all = addLines(all, p)
			}
		}
		for _, p := range all {
			p.Lines = []run.Line{run.Band(of[0].Method, p.Lines)}
			drawn = addLines(drawn, p)
		}
	}
	return drawn
}

// addLines adds a panel's lines to the panel with the same axes.
func addLines(to []run.Panel, p run.Panel) []run.Panel {
	i := slices.IndexFunc(to, func(q run.Panel) bool { return q.Label == p.Label && q.X == p.X })
	if i < 0 {
		i, to = len(to), append(to, run.Panel{Label: p.Label, X: p.X})
	}
	to[i].Lines = append(to[i].Lines, p.Lines...)
	return to
}

// blocks are the means of size records each: single updates scatter.
func blocks(records []run.Record, size int) (means []run.Record) {
	for ; len(records) > 0; records = records[min(size, len(records)):] {
		block := run.Record{Values: map[string]float64{}}
		count := map[string]float64{}
		for _, r := range records[:min(size, len(records))] {
			block.Step = r.Step
			for name, x := range r.Values {
				count[name]++
				block.Values[name] += (x - block.Values[name]) / count[name]
			}
		}
		means = append(means, block)
	}
	return means
}
