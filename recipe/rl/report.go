package rl

import (
	"fmt"
	"math"
	"strings"

	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/recipe"
)

// tableRow is a line of a table of before and after.
func tableRow(name, before, after string) string {
	return fmt.Sprintf("%-12s  %-36s  %s\n", name, before, after)
}

// meanCell is a mean with its interval.
func meanCell(m *eval.Mean) string {
	if math.IsNaN(m.Value()) { // no answer has one
		return "     -"
	}
	low, high := m.Interval()
	return fmt.Sprintf("%6.3f  %-9s (%.3f to %.3f)", m.Value(), "", low, high)
}

// estimate is a value with its interval.
type estimate struct{ Value, Low, High float64 }

// ofMean is the estimate of a mean.
func ofMean(m *eval.Mean) estimate {
	low, high := m.Interval()
	return estimate{m.Value(), low, high}
}

// direction says in words how an estimate changed, and whether the intervals prove it.
func direction(before, after estimate) string {
	if after.Value == before.Value {
		return "stayed the same"
	}
	word := recipe.Change{First: before.Value, Last: after.Value}.Direction()
	if after.Low > before.High || after.High < before.Low {
		return word + " clearly (the intervals are apart)"
	}
	return word + ", but the intervals overlap"
}

// table shows a test split before and after training.
func table(before, after *eval.Tally) string {
	var s strings.Builder
	line := func(name, before, after string) { s.WriteString(tableRow(name, before, after)) }
	line("", "before", "after")
	line("integrity", rateCell(&before.Integrity), rateCell(&after.Integrity))
	line("utility", rateCell(&before.Utility), rateCell(&after.Utility))
	line("complete", rateCell(&before.Complete), rateCell(&after.Complete))
	line("format kept", rateCell(&before.Format), rateCell(&after.Format))
	line("mean reward", meanCell(&before.Reward), meanCell(&after.Reward))
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
	rate := func(r *eval.Rate) estimate {
		low, high := r.Interval()
		return estimate{Value: r.Share().Value(), Low: low, High: high}
	}
	return fmt.Sprintf("The share of complete answers %s; the mean reward %s.\n",
		direction(rate(&before.Complete), rate(&after.Complete)),
		direction(ofMean(&before.Reward), ofMean(&after.Reward)))
}
