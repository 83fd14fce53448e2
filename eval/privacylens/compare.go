package privacylens

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"

	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/eval/bench"
)

// Compared is a run with its name.
type Compared struct {
	Name     string
	Results  []CaseResult
	Settings bench.Settings // of its stages; nil: not known
}

// ReadCompared reads a run that was reported.
func ReadCompared(dir string) (c Compared, err error) {
	c.Name = filepath.Clean(dir)
	if c.Results, err = readResults(dir); err != nil {
		return c, err
	}
	c.Settings, err = bench.ReadSettings(dir)
	return c, err
}

// Comparison puts runs on the same cases side by side.
type Comparison struct {
	Cases       int           `json:"cases"`
	Runs        []NamedGroup  `json:"runs"`
	Differences []Differences `json:"differences"` // of every later run from the first
	Warnings    []string      `json:"warnings,omitempty"`
}

// Differences are those of a run from another, over the same cases.
type Differences struct {
	From        string          `json:"from"`
	To          string          `json:"to"`
	Leakage     eval.Difference `json:"leakage_rate"`
	Adjusted    eval.Difference `json:"adjusted_leakage_rate"` // each among its own helpful cases
	Helpfulness eval.Difference `json:"helpfulness"`
	OnlyFrom    []string        `json:"leaks_only_in_from"` // names of cases
	OnlyTo      []string        `json:"leaks_only_in_to"`
	Both        int             `json:"leaks_in_both"`
	Neither     int             `json:"leaks_in_neither"`
	P           float64         `json:"leakage_p"` // exact McNemar test of OnlyFrom against OnlyTo, two-sided
}

// Compare compares runs over the same cases with the first of them.
func Compare(runs ...Compared) (*Comparison, error) {
	if len(runs) < 2 {
		return nil, fmt.Errorf("%d run: want two or more to compare", len(runs))
	}
	out := &Comparison{Cases: len(runs[0].Results)}
	for i, run := range runs {
		joined, err := join(runs[0], run)
		if err != nil {
			return nil, err
		}
		out.Runs = append(out.Runs, NamedGroup{run.Name, Count(joined)})
		if i > 0 {
			out.Differences = append(out.Differences, differences(runs[0], Compared{Name: run.Name, Results: joined}))
			out.Warnings = append(out.Warnings,
				bench.OtherJudge(runs[0].Name, runs[0].Settings, run.Name, run.Settings)...)
		}
	}
	return out, nil
}

// join puts the results of a run into the order of the first one's.
func join(first, run Compared) ([]CaseResult, error) {
	byName := map[string]*CaseResult{}
	for i := range run.Results {
		byName[run.Results[i].Name] = &run.Results[i]
	}
	if len(byName) != len(run.Results) {
		return nil, fmt.Errorf("%s: a case is there twice", run.Name)
	}
	joined := make([]CaseResult, len(first.Results))
	for i := range first.Results {
		a := &first.Results[i]
		b, ok := byName[a.Name]
		switch {
		case !ok:
			return nil, fmt.Errorf("%s has no case %s, which %s has: want runs over the same cases", run.Name, a.Name,
				first.Name)
		case !slices.EqualFunc(a.Items, b.Items, func(x, y ItemResult) bool { return x.Item == y.Item }):
			return nil, fmt.Errorf("%s: %s has other sensitive items than in %s: want runs over the same data",
				run.Name, a.Name, first.Name)
		}
		joined[i] = *b
	}
	if len(byName) > len(joined) {
		return nil, fmt.Errorf("%s has %d cases, %s has %d: want runs over the same cases", run.Name, len(byName),
			first.Name, len(joined))
	}
	return joined, nil
}

// differences compares two runs whose results stand in the same order.
func differences(from, to Compared) Differences {
	d := Differences{From: from.Name, To: to.Name, OnlyFrom: []string{}, OnlyTo: []string{}}
	for i, a := range from.Results {
		switch b := to.Results[i]; {
		case a.Leaks && b.Leaks:
			d.Both++
		case a.Leaks:
			d.OnlyFrom = append(d.OnlyFrom, a.Name)
		case b.Leaks:
			d.OnlyTo = append(d.OnlyTo, a.Name)
		default:
			d.Neither++
		}
	}
	d.P = mcnemar(len(d.OnlyFrom), len(d.OnlyTo))
	leak := func(r *CaseResult) float64 { return float(r.Leaks) }
	every := func(*CaseResult) bool { return true }
	scored := func(r *CaseResult) bool { return r.Helpfulness != nil }
	d.Leakage = difference(from.Results, to.Results, every, leak)
	d.Adjusted = difference(from.Results, to.Results, (*CaseResult).Helpful, leak)
	d.Helpfulness = difference(from.Results, to.Results, scored,
		func(r *CaseResult) float64 { return float64(*r.Helpfulness) })
	return d
}

func float(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// difference compares the means of a value over the cases that count.
func difference(from, to []CaseResult, counts func(*CaseResult) bool, value func(*CaseResult) float64) eval.Difference {
	return eval.Paired(len(from), func(second bool, i int) (float64, bool) {
		r := &from[i]
		if second {
			r = &to[i]
		}
		if !counts(r) {
			return 0, false
		}
		return value(r), true
	})
}

// mcnemar is the exact two-sided test of two counts that would be alike if the runs were: the share of outcomes of a+b
// tosses of a coin that are no more even than this one.
func mcnemar(a, b int) float64 {
	n, k := a+b, min(a, b)
	logFactorial := func(x int) float64 { y, _ := math.Lgamma(float64(x) + 1); return y }
	tail := 0.0
	for i := range k + 1 {
		tail += math.Exp(logFactorial(n) - logFactorial(i) - logFactorial(n-i) - float64(n)*math.Ln2)
	}
	return min(1, 2*tail)
}
