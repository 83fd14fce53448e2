package rl

import (
	"fmt"

	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/train"
)

// Row is a line of a table of before and after.
func Row(name, before, after string) string {
	return fmt.Sprintf("%-12s  %-36s  %s\n", name, before, after)
}

// MeanCell is a mean with its interval.
func MeanCell(m *eval.Mean) string {
	low, high := m.Interval()
	return fmt.Sprintf("%6.3f  %-9s (%.3f to %.3f)", m.Value(), "", low, high)
}

// Estimate is a value with its interval.
type Estimate struct{ Value, Low, High float64 }

// OfMean is the estimate of a mean.
func OfMean(m *eval.Mean) Estimate {
	low, high := m.Interval()
	return Estimate{m.Value(), low, high}
}

// Direction says in words how an estimate changed, and whether the intervals prove it.
func Direction(before, after Estimate) string {
	if after.Value == before.Value {
		return "stayed the same"
	}
	word := recipe.Change{First: before.Value, Last: after.Value}.Direction()
	if after.Low > before.High || after.High < before.Low {
		return word + " clearly (the intervals are apart)"
	}
	return word + ", but the intervals overlap"
}

// Outcome is what a run has come to, with a test split before and after training, both nil without a test.
func (l *Loop) Outcome(before, after any) recipe.Outcome {
	return recipe.Outcome{Data: l.Data, Test: recipe.Tests{Temperature: &l.Validation.Temperature, Before: before,
		After: after}}
}

// Head is the first line of a summary.
func (l *Loop) Head(t *train.Trainer) string {
	return fmt.Sprintf("%s: %s of %d prompts with %d completions each, from %d training prompts, engine %s.\n", l.Title,
		recipe.Count(t.Step(), "step"), l.GRPO.Prompts, l.GRPO.GroupSize, len(l.Tasks), l.Engine.Name)
}
