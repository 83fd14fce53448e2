package main

import (
	"github.com/posttrain/posttrain/recipe"
	cirlrecipe "github.com/posttrain/posttrain/recipe/cirl"

	"fmt"
	"strings"

	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/run"
)

// cirlSummary is summary.json.
type cirlSummary struct {
	Command string      `json:"command"`
	Model   string      `json:"model"`
	Data    string      `json:"data"`
	Engine  string      `json:"engine"`
	Seed    uint64      `json:"seed"`
	Steps   int         `json:"steps"`
	Best    *run.Best   `json:"best"` // null where nothing was validated
	Test    testSummary `json:"test"`
}

// testSummary is the test split before and after, each null where there is no test.
type testSummary struct {
	Temperature float64      `json:"temperature"`
	Before      *measurement `json:"before"`
	After       *measurement `json:"after"`
}

// report writes and prints the summary.
func (r *cirl) report(best *run.Best, before, after *measurement) error {
	c := r.config
	err := r.folder.WriteSummaryJSON(cirlSummary{
		Command: cirlrecipe.Command, Model: c.Model, Data: c.Data.Train, Engine: r.world.engine.Name, Seed: c.Seed, Steps: r.loop.Step(), Best: best,
		Test: testSummary{c.Validation.Temperature, before, after},
	})
	if err != nil {
		return err
	}
	return r.conclude(r.summary(best, before, after))
}

// summary says in words what the run did.
func (r *cirl) summary(best *run.Best, before, after *measurement) string {
	var s strings.Builder
	g := r.config.GRPO
	fmt.Fprintf(&s, "%s: %s of %d prompts with %d completions each, from %d training prompts, engine %s.\n",
		r.title, recipe.Count(r.loop.Step(), "step"), g.Prompts, g.GroupSize, len(r.items.train), r.world.engine.Name)
	if before != nil && after != nil {
		fmt.Fprintf(&s, "Test of %d prompts, one completion each at temperature %v; in brackets the 95%% intervals:\n",
			len(r.items.test), r.config.Validation.Temperature)
		s.WriteString(beforeAfter(&before.All, &after.All))
		s.WriteString(verdictOfTest(&before.All, &after.All))
	}
	f := r.folder
	s.WriteString(recipe.WhichModel(f, best, r.loop.Step()))
	fmt.Fprintf(&s, "Model: %s\nCurves: %s\nMetrics: %s\nSamples: %s\n", f.ModelDir(), f.Path("curves.png"), f.Path("metrics.jsonl"), f.SamplesPath())
	return s.String()
}

// beforeAfter is the table of a test split.
func beforeAfter(before, after *eval.Tally) string {
	var s strings.Builder
	fmt.Fprintf(&s, "%-12s  %-36s  %s\n", "", "before", "after")
	for _, row := range []struct {
		name   string
		before string
		after  string
	}{
		{"integrity", rateCell(&before.Integrity), rateCell(&after.Integrity)},
		{"utility", rateCell(&before.Utility), rateCell(&after.Utility)},
		{"complete", rateCell(&before.Complete), rateCell(&after.Complete)},
		{"format kept", rateCell(&before.Format), rateCell(&after.Format)},
		{"mean reward", meanCell(&before.Reward), meanCell(&after.Reward)},
	} {
		fmt.Fprintf(&s, "%-12s  %-36s  %s\n", row.name, row.before, row.after)
	}
	return s.String()
}

// rateCell is a proportion with its counts and its interval, in percent.
func rateCell(r *eval.Rate) string {
	low, high := r.Interval()
	all := r.Share()
	return fmt.Sprintf("%5.1f%%  %-9s (%.1f to %.1f)", 100*all.Value(), fmt.Sprintf("%d/%d", all.Count, all.Total), 100*low, 100*high)
}

func meanCell(m *eval.Mean) string {
	low, high := m.Interval()
	return fmt.Sprintf("%6.3f  %-9s (%.3f to %.3f)", m.Value(), "", low, high)
}

// verdictOfTest says what the intervals allow to say.
func verdictOfTest(before, after *eval.Tally) string {
	complete := moved(before.Complete.Share().Value(), after.Complete.Share().Value(), interval(before.Complete.Interval()), interval(after.Complete.Interval()))
	reward := moved(before.Reward.Value(), after.Reward.Value(), interval(before.Reward.Interval()), interval(after.Reward.Interval()))
	return fmt.Sprintf("The share of complete answers %s; the mean reward %s.\n", complete, reward)
}

func interval(low, high float64) [2]float64 { return [2]float64{low, high} }

// moved compares two measurements with their intervals.
func moved(before, after float64, from, to [2]float64) string {
	apart := to[0] > from[1] || to[1] < from[0]
	switch {
	case after == before:
		return "stayed"
	case after > before && apart:
		return "rose clearly (the intervals are apart)"
	case after > before:
		return "rose, but the intervals overlap"
	case apart:
		return "sank clearly (the intervals are apart)"
	}
	return "sank, but the intervals overlap"
}
