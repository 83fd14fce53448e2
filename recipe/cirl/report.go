package cirl

import (
	"fmt"
	"strings"

	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/train"
)

// summaryFile is summary.json.
type summaryFile struct {
	Command string      `json:"command"`
	Model   string      `json:"model"`
	Data    string      `json:"data"`
	Engine  string      `json:"engine"`
	Seed    uint64      `json:"seed"`
	Steps   int         `json:"steps"`
	Best    *run.Best   `json:"best"` // null where nothing was validated
	Test    testSummary `json:"test"`
}

// testSummary is the test split before and after training, both null without a test.
type testSummary struct {
	Temperature float64      `json:"temperature"`
	Before      *eval.Report `json:"before"`
	After       *eval.Report `json:"after"`
}

// report writes the summary, for programs and in words.
func (t *training) report(trainer *train.Trainer, best *run.Best, before, after *eval.Report) (*Result, error) {
	o := t.o
	err := t.Folder.WriteSummaryJSON(summaryFile{
		Command: Command, Model: o.Model, Data: o.Data.Train.String(), Engine: t.Engine.Name, Seed: o.Seed, Steps: trainer.Step(),
		Best: best, Test: testSummary{o.Validation.Temperature, before, after},
	})
	if err != nil {
		return nil, err
	}
	text := fmt.Sprintf("%s: %s of %d prompts with %d completions each, from %d training prompts, engine %s.\n",
		t.Title,
		recipe.Count(trainer.Step(), "step"), o.GRPO.Prompts, o.GRPO.GroupSize, len(t.train), t.Engine.Name)
	if before != nil && after != nil {
		text += fmt.Sprintf("Test of %d prompts, one completion each at temperature %v; "+
			"in brackets the 95%% intervals:\n",
			len(t.test), o.Validation.Temperature)
		text += table(&before.All, &after.All) + verdict(&before.All, &after.All)
	}
	result, err := t.Finish(trainer, best, text+t.WhichModel(best, trainer.Step()))
	if err != nil {
		return nil, err
	}
	return &Result{*result, before, after}, nil
}

// table shows a test split before and after training.
func table(before, after *eval.Tally) string {
	var s strings.Builder
	row := func(name, before, after string) { fmt.Fprintf(&s, "%-12s  %-36s  %s\n", name, before, after) }
	row("", "before", "after")
	row("integrity", rateCell(&before.Integrity), rateCell(&after.Integrity))
	row("utility", rateCell(&before.Utility), rateCell(&after.Utility))
	row("complete", rateCell(&before.Complete), rateCell(&after.Complete))
	row("format kept", rateCell(&before.Format), rateCell(&after.Format))
	row("mean reward", meanCell(&before.Reward), meanCell(&after.Reward))
	return s.String()
}

// rateCell is a proportion with its counts and its interval, in percent.
func rateCell(r *eval.Rate) string {
	low, high := r.Interval()
	all := r.Share()
	counts := fmt.Sprintf("%d/%d", all.Count, all.Total)
	return fmt.Sprintf("%5.1f%%  %-9s (%.1f to %.1f)", 100*all.Value(), counts, 100*low, 100*high)
}

func meanCell(m *eval.Mean) string {
	low, high := m.Interval()
	return fmt.Sprintf("%6.3f  %-9s (%.3f to %.3f)", m.Value(), "", low, high)
}

// verdict says which changes the intervals prove.
func verdict(before, after *eval.Tally) string {
	rate := func(r *eval.Rate) estimate {
		low, high := r.Interval()
		return estimate{r.Share().Value(), low, high}
	}
	mean := func(m *eval.Mean) estimate {
		low, high := m.Interval()
		return estimate{m.Value(), low, high}
	}
	return fmt.Sprintf("The share of complete answers %s; the mean reward %s.\n",
		direction(rate(&before.Complete), rate(&after.Complete)), direction(mean(&before.Reward), mean(&after.Reward)))
}

// estimate is a value with its interval.
type estimate struct{ value, low, high float64 }

// direction says in words how an estimate changed.
func direction(before, after estimate) string {
	if after.value == before.value {
		return "stayed the same"
	}
	word := recipe.Change{First: before.value, Last: after.value}.Direction()
	if after.low > before.high || after.high < before.low {
		return word + " clearly (the intervals are apart)"
	}
	return word + ", but the intervals overlap"
}
