package bench

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/internal/config"
)

// Comparison puts reported runs of a benchmark on the same cases side by side.
type Comparison struct {
	Cases       int          `json:"cases"`
	Runs        []Compared   `json:"runs"`
	Differences []Difference `json:"differences"` // of every later run from the first
	Warnings    []string     `json:"warnings,omitempty"`
}

// Compared is a run with its means by measure, null where no case has the measure.
type Compared struct {
	Name  string              `json:"name"`
	Means map[string]*float64 `json:"means"`
	Cost  Cost                `json:"cost,omitzero"`

	command  string
	ids      []string                     // of cases: of an item with several samples the item's
	scores   map[string]map[string]scored // by id and measure
	settings Settings
}

// scored is a measure of a case's samples, which resemble each other.
type scored struct{ sum, count float64 }

func (s scored) mean() float64 { return s.sum / s.count }

// Difference is how a run differs from another, over the same cases, in a measure. Each run has the mean of its own
// cases that have the measure.
type Difference struct {
	From    string          `json:"from"`
	To      string          `json:"to"`
	Measure string          `json:"measure"`
	Change  eval.Difference `json:"difference"`
	Better  int             `json:"higher"` // cases that have the measure in both runs
	Worse   int             `json:"lower"`
	Equal   int             `json:"equal"`
	YesNo   *Contrasts      `json:"yes_no,omitempty"` // of a measure that is 0 or 1 in every case
}

// Contrasts say in which cases a measure holds.
type Contrasts struct {
	OnlyFrom []string `json:"only_in_from"` // names of cases
	OnlyTo   []string `json:"only_in_to"`
	Both     int      `json:"in_both"`
	Neither  int      `json:"in_neither"`
	P        float64  `json:"p"` // exact McNemar test of OnlyFrom against OnlyTo, two-sided
}

// Compare compares reported runs with the first of them, case by case.
func Compare(dirs ...string) (*Comparison, error) {
	if len(dirs) < 2 {
		return nil, fmt.Errorf("%d run: want two or more to compare", len(dirs))
	}
	c := &Comparison{}
	for i, dir := range dirs {
		run, err := readCompared(dir)
		if err != nil {
			return nil, err
		}
		c.Runs = append(c.Runs, run)
		first := c.Runs[0]
		if err := sameCases(first, run); err != nil {
			return nil, err
		}
		if i == 0 {
			continue
		}
		for _, measure := range slices.Sorted(maps.Keys(first.Means)) {
			c.Differences = append(c.Differences, differenceOf(first, run, measure))
		}
		c.Warnings = append(c.Warnings, otherJudge(first, run)...)
	}
	c.Cases = len(c.Runs[0].ids)
	return c, nil
}

// readCompared reads the cases of a run that was reported.
func readCompared(dir string) (c Compared, err error) {
	c = Compared{Name: filepath.Clean(dir), Means: map[string]*float64{}, scores: map[string]map[string]scored{}}
	text, err := config.Open(filepath.Join(dir, "config.yaml"))
	if err != nil {
		return c, fmt.Errorf("%s: there is no run in it (no config.yaml): want the folder of a run", dir)
	}
	c.command = config.CommandOf(text)
	path := filepath.Join(dir, CasesName)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return c, fmt.Errorf("%s: no such file: want a run that was reported (posttrain %s --stage report --out %s)", path,
			c.command, dir)
	}
	means, seen := map[string]*eval.Mean{}, map[string]bool{}
	err = data.ReadLines(path, func(line int, r struct {
		ID     string
		Item   string // of a sample
		Score  *float64
		Scores map[string]*float64
	}) error {
		if seen[r.ID] || r.ID == "" {
			return fmt.Errorf("%s:%d: id %q is empty or is there twice: want a case as the stage report writes it", path,
				line, r.ID)
		}
		if r.Scores == nil {
			r.Scores = map[string]*float64{"score": r.Score}
		}
		seen[r.ID] = true
		id := cmp.Or(r.Item, r.ID)
		if c.scores[id] == nil {
			c.scores[id], c.ids = map[string]scored{}, append(c.ids, id)
		}
		for name, x := range r.Scores {
			if means[name] == nil {
				means[name] = &eval.Mean{}
			}
			if x != nil {
				means[name].Add(line, *x)
				s := c.scores[id][name]
				c.scores[id][name] = scored{s.sum + *x, s.count + 1}
			}
		}
		return nil
	})
	judged := false
	for name, m := range means {
		c.Means[name] = eval.Finite(m.Value())
		judged = judged || c.Means[name] != nil
	}
	if err == nil && !judged {
		err = fmt.Errorf("%s: no case has a score: want a run that was judged", path)
	}
	if err == nil {
		c.settings, err = ReadSettings(dir)
	}
	if err == nil {
		c.Cost, err = readCost(dir, len(c.ids))
	}
	return c, err
}

// sameCases wants runs of a benchmark over the same cases.
func sameCases(first, run Compared) error {
	if first.command != run.command {
		return fmt.Errorf("%s is of %s, %s of %s: want runs of one benchmark", run.Name, run.command, first.Name,
			first.command)
	}
	for _, id := range first.ids {
		if _, found := run.scores[id]; !found {
			return fmt.Errorf("%s has no case %s, which %s has: want runs over the same cases", run.Name, id, first.Name)
		}
	}
	if len(run.ids) != len(first.ids) {
		return fmt.Errorf("%s has %d cases, %s has %d: want runs over the same cases", run.Name, len(run.ids),
			first.Name, len(first.ids))
	}
	a, b := first.settings[StageAnswers]["cases"], run.settings[StageAnswers]["cases"]
	if a != "" && b != "" && a != b {
		return fmt.Errorf("%s was run on other cases (%s) than %s (%s): want runs over the same cases", run.Name, b,
			first.Name, a)
	}
	return nil
}

func differenceOf(from, to Compared, measure string) Difference {
	d := Difference{From: from.Name, To: to.Name, Measure: measure, YesNo: &Contrasts{OnlyFrom: []string{},
		OnlyTo: []string{}}}
	d.Change = eval.Paired(len(from.ids), func(second bool, i int) (sum, count float64) {
		s := from.scores[from.ids[i]][measure]
		if second {
			s = to.scores[from.ids[i]][measure]
		}
		return s.sum, s.count
	})
	yesNo := true
	for _, id := range from.ids {
		a, b := from.scores[id][measure].mean(), to.scores[id][measure].mean()
		if math.IsNaN(a) || math.IsNaN(b) { // no score
			continue
		}
		switch yesNo = yesNo && a*(1-a) == 0 && b*(1-b) == 0; {
		case b > a:
			d.Better++
			d.YesNo.OnlyTo = append(d.YesNo.OnlyTo, id)
		case b < a:
			d.Worse++
			d.YesNo.OnlyFrom = append(d.YesNo.OnlyFrom, id)
		default:
			if d.Equal++; a == 1 {
				d.YesNo.Both++
			} else {
				d.YesNo.Neither++
			}
		}
	}
	if d.YesNo.P = mcnemar(d.Worse, d.Better); !yesNo {
		d.YesNo = nil
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

// otherJudge says in what two runs were judged differently.
func otherJudge(first, run Compared) []string {
	x, y := first.settings[StageJudge], run.settings[StageJudge]
	for _, name := range []string{"kind", "model", "base_url", "prompts", "max_new_tokens", "logprobs", "baseline",
		"references"} {
		if x != nil && y != nil && x[name] != y[name] {
			return []string{fmt.Sprintf("%s was judged with %s %q, %s with %q: the differences are not those of the "+
				"agents alone", run.Name, name, y[name], first.Name, x[name])}
		}
	}
	return nil
}

// Write prints the comparison as a table for a terminal.
func (c *Comparison) Write(w io.Writer) error {
	measures := slices.Sorted(maps.Keys(c.Runs[0].Means))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "%d cases", c.Cases)
	for _, m := range measures {
		fmt.Fprintf(t, "\t%s", m)
	}
	costs := slices.ContainsFunc(c.Runs, func(r Compared) bool { return r.Cost.Requests > 0 })
	if costs {
		fmt.Fprint(t, "\trequests\tprompt tokens\ttokens\tseconds")
	}
	for _, r := range c.Runs {
		fmt.Fprintf(t, "\n%s", r.Name)
		for _, m := range measures {
			if x := r.Means[m]; x != nil {
				fmt.Fprintf(t, "\t%.3f", *x)
			} else {
				fmt.Fprint(t, "\t-")
			}
		}
		if costs {
			fmt.Fprint(t, r.Cost.cells())
		}
	}
	fmt.Fprintln(t)
	for _, d := range c.Differences {
		if y := d.YesNo; y != nil {
			fmt.Fprintf(t, "%s against %s, %s: %s; %d in both, %d only in %s, %d only in %s, %d in neither (McNemar p = "+
				"%.3g)\n", d.To, d.From, d.Measure, d.Change.Points(), y.Both, d.Worse, d.From, d.Better, d.To, y.Neither, y.P)
			continue
		}
		fmt.Fprintf(t, "%s against %s, %s: %s; higher in %d cases, lower in %d, equal in %d\n", d.To, d.From, d.Measure,
			d.Change.Scores(), d.Better, d.Worse, d.Equal)
	}
	for _, warning := range c.Warnings {
		fmt.Fprintln(t, "warning:", warning)
	}
	return t.Flush()
}
