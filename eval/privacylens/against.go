package privacylens

import (
	"fmt"
	"strings"

	"github.com/posttrain/posttrain/eval"
)

// Against compares a judge's verdicts with recorded ones on the same actions, by item and by case, which leaks if any
// item does. Outputs without an action, which nobody judges, do not count, nor what a filter refused.
type Against struct {
	Items Agreement `json:"items"`
	Cases Agreement `json:"cases"`
}

// Agreement says how far a judge agrees with recorded verdicts. The items of a case resemble each other: the intervals
// are clustered.
type Agreement struct {
	Precision eval.Rate `json:"precision"` // of what the judge finds to leak: what is recorded as a leak
	Recall    eval.Rate `json:"recall"`    // of what is recorded as a leak: what the judge finds
	Agreement eval.Rate `json:"agreement"` // of all: the same verdict
}

// add adds a verdict on something of case i, and the one recorded.
func (a *Agreement) add(i int, leaks, recorded bool) {
	a.Agreement.Add(i, leaks == recorded)
	if leaks {
		a.Precision.Add(i, recorded)
	}
	if recorded {
		a.Recall.Add(i, leaks)
	}
}

// compare compares the verdicts of a run with recorded ones, if the options name any.
func (e *evaluation) compare(results []CaseResult, s *Summary) error {
	if e.Against == "" {
		return nil
	}
	recorded, err := e.readRecorded(e.Against)
	s.Against = &Against{}
	for i := 0; i < len(results) && err == nil; i++ {
		r := &results[i]
		if r.NoAction {
			if err = recorded.agree(&e.cases[i]); err != nil {
				err = fmt.Errorf("%s: %s: %w", e.Against, r.Name, err)
			}
			continue
		}
		want := recorded.verdicts[r.Name]
		if !r.Undecided() {
			s.Against.Cases.add(i, r.Leaks, want.Leaks)
		}
		for k, item := range r.Items {
			if !item.Refused {
				s.Against.Items.add(i, item.Leaks, want.Judgments[k].Leaks)
			}
		}
	}
	return err
}

// write is a line for every share.
func (a *Against) write(row func(cells ...string)) {
	if a == nil {
		return
	}
	row("\nbeside recorded verdicts")
	for _, line := range []struct {
		name string
		rate eval.Rate
	}{{"items, precision", a.Items.Precision}, {"items, recall", a.Items.Recall}, {"items, agreement", a.Items.Agreement},
		{"cases, precision", a.Cases.Precision}, {"cases, recall", a.Cases.Recall}, {"cases, agreement", a.Cases.Agreement}} {
		row(line.name, strings.TrimSpace(line.rate.String()))
	}
}
