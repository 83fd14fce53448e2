package cirl

import (
	"fmt"
	"strings"

	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe/rl"
	"github.com/posttrain/posttrain/train"
)

// report writes the summary, for programs and in words.
func (t *training) report(trainer *train.Trainer, best *run.Best, before, after *eval.Report) (*Result, error) {
	text, outcome := t.Head(trainer), t.Outcome(nil, nil)
	if before != nil && after != nil {
		text += fmt.Sprintf("Test of %d prompts, one completion each at temperature %v; "+
			"in brackets the 95%% intervals:\n",
			len(t.test), t.o.Validation.Temperature)
		outcome = t.Outcome(before, after)
		text += table(&before.All, &after.All) + verdict(&before.All, &after.All)
	}
	result, err := t.Finish(trainer, best, text+t.WhichModel(best, trainer.Step()), outcome)
	if err != nil {
		return nil, err
	}
	return &Result{*result, before, after}, nil
}

// table shows a test split before and after training.
func table(before, after *eval.Tally) string {
	var s strings.Builder
	row := func(name, before, after string) { s.WriteString(rl.Row(name, before, after)) }
	row("", "before", "after")
	row("integrity", rateCell(&before.Integrity), rateCell(&after.Integrity))
	row("utility", rateCell(&before.Utility), rateCell(&after.Utility))
	row("complete", rateCell(&before.Complete), rateCell(&after.Complete))
	row("format kept", rateCell(&before.Format), rateCell(&after.Format))
	row("mean reward", rl.MeanCell(&before.Reward), rl.MeanCell(&after.Reward))
	return s.String()
}

// rateCell is a proportion with its counts and its interval, in percent.
func rateCell(r *eval.Rate) string {
	low, high := r.Interval()
	all := r.Share()
	counts := fmt.Sprintf("%d/%d", all.Count, all.Total)
	return fmt.Sprintf("%5.1f%%  %-9s (%.1f to %.1f)", 100*all.Value(), counts, 100*low, 100*high)
}

// verdict says which changes the intervals prove.
func verdict(before, after *eval.Tally) string {
	rate := func(r *eval.Rate) rl.Estimate {
		low, high := r.Interval()
		return rl.Estimate{Value: r.Share().Value(), Low: low, High: high}
	}
	return fmt.Sprintf("The share of complete answers %s; the mean reward %s.\n",
		rl.Direction(rate(&before.Complete), rate(&after.Complete)),
		rl.Direction(rl.OfMean(&before.Reward), rl.OfMean(&after.Reward)))
}
