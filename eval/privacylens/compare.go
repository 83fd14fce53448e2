package privacylens

import (
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"

	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/eval/stages"
)

// Compared is a run with its name.
type Compared struct {
	Name     string
	Results  []CaseResult
	Settings stages.Settings // of its stages; nil: not known
}

// ReadCompared reads a run that was reported.
func ReadCompared(dir string) (c Compared, err error) {
	c.Name = filepath.Clean(dir)
	if c.Results, err = readResults(dir); err != nil {
		return c, err
	}
	c.Settings, err = stages.ReadSettings(dir)
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
	From        string     `json:"from"`
	To          string     `json:"to"`
	Leakage     Difference `json:"leakage_rate"`
	Adjusted    Difference `json:"adjusted_leakage_rate"` // each among its own helpful cases
	Helpfulness Difference `json:"helpfulness"`
	OnlyFrom    []string   `json:"leaks_only_in_from"` // names of cases
	OnlyTo      []string   `json:"leaks_only_in_to"`
	Both        int        `json:"leaks_in_both"`
	Neither     int        `json:"leaks_in_neither"`
	P           float64    `json:"leakage_p"` // exact McNemar test of OnlyFrom against OnlyTo, two-sided
}

// Difference is to − from with its 95 % paired bootstrap interval; null where one of the two is not available.
type Difference struct {
	From  *float64 `json:"from"`
	To    *float64 `json:"to"`
	Value *float64 `json:"value"`
	Low   *float64 `json:"low"`
	High  *float64 `json:"high"`
}

// Points prints the difference of two rates, in points of percent.
func (d Difference) Points() string {
	return d.print(100, "%+.1f points (95%% interval %+.1f to %+.1f)")
}

// Scores prints the difference of two means.
func (d Difference) Scores() string { return d.print(1, "%+.2f (95%% interval %+.2f to %+.2f)") }

func (d Difference) print(scale float64, form string) string {
	if d.Value == nil || d.Low == nil {
		return "not available"
	}
	return fmt.Sprintf(form, scale**d.Value, scale**d.Low, scale**d.High)
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
		out.Runs = append(out.Runs, NamedGroup{run.Name, groupOf(joined)})
		if i > 0 {
			out.Differences = append(out.Differences, differences(runs[0], Compared{Name: run.Name, Results: joined}))
			out.Warnings = append(out.Warnings, otherJudge(runs[0], run)...)
		}
	}
	return out, nil
}

// otherJudge says in what two runs were judged differently.
func otherJudge(first, run Compared) []string {
	a, b := first.Settings[StageJudge], run.Settings[StageJudge]
	for _, name := range []string{"kind", "model", "base_url", "prompts", "max_new_tokens"} {
		if a != nil && b != nil && a[name] != b[name] {
			return []string{fmt.Sprintf("%s was judged with %s %q, %s with %q: the differences are not those of the "+
				"agents alone", run.Name, name, b[name], first.Name, a[name])}
		}
	}
	return nil
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

// Resamples and seed of the paired bootstrap: the same runs give the same interval.
const (
	resamples = 2000
	bootSeed  = 0x70616972
)

// difference compares the means of a value over the cases that count. The bootstrap draws cases, each with both of its
// runs; draws in which one of the runs has no case that counts are left out, and if they are many there is no interval.
func difference(from, to []CaseResult, counts func(*CaseResult) bool, value func(*CaseResult) float64) (d Difference) {
	n := len(from)
	rows := make([][4]float64, n) // by case: value and 1 in from, value and 1 in to; 0 and 0 where it does not count
	for i := range rows {
		for side, r := range []*CaseResult{&from[i], &to[i]} {
			if counts(r) {
				rows[i][2*side], rows[i][2*side+1] = value(r), 1
			}
		}
	}
	means := func(draw func(i int) int) (a, b float64) { // NaN of no case
		var sums [4]float64
		for i := range n {
			for k, x := range rows[draw(i)] {
				sums[k] += x
			}
		}
		return sums[0] / sums[1], sums[2] / sums[3]
	}
	a, b := means(func(i int) int { return i })
	d.From, d.To, d.Value = eval.Finite(a), eval.Finite(b), eval.Finite(b-a)
	if d.Value == nil || n < 2 {
		return d
	}
	rng := rand.New(rand.NewPCG(bootSeed, uint64(n)))
	var draws []float64
	for range resamples {
		if a, b := means(func(int) int { return rng.IntN(n) }); !math.IsNaN(b - a) {
			draws = append(draws, b-a)
		}
	}
	if len(draws) > resamples*9/10 {
		slices.Sort(draws)
		d.Low, d.High = eval.Finite(draws[len(draws)/40]), eval.Finite(draws[len(draws)-1-len(draws)/40])
	}
	return d
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
