package bench

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"text/tabwriter"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/eval"
)

// Comparison puts reported runs of a benchmark on the same cases side by side.
type Comparison struct {
	Cases       int          `json:"cases"`
	Runs        []Compared   `json:"runs"`
	Differences []Difference `json:"differences"` // of every later run from the first
	Warnings    []string     `json:"warnings,omitempty"`
}

// Compared is a run with its mean score.
type Compared struct {
	Name   string   `json:"name"`
	Score  *float64 `json:"score"`
	Scored int      `json:"scored"` // cases with a score

	scores   map[string]*float64 // by id
	ids      []string
	settings Settings
}

// Difference is that of a run from another, over the same cases.
type Difference struct {
	From   string          `json:"from"`
	To     string          `json:"to"`
	Score  eval.Difference `json:"score"` // over the cases that have a score in both runs
	Better int             `json:"better"`
	Worse  int             `json:"worse"`
	Equal  int             `json:"equal"`
}

// Compare compares reported runs with the first of them, case by case.
func Compare(command string, dirs ...string) (*Comparison, error) {
	if len(dirs) < 2 {
		return nil, fmt.Errorf("%d run: want two or more to compare", len(dirs))
	}
	c := &Comparison{}
	for i, dir := range dirs {
		run, err := readCompared(command, dir)
		if err != nil {
			return nil, err
		}
		c.Runs = append(c.Runs, run)
		first := c.Runs[0]
		if err := sameIDs(first, run); err != nil {
			return nil, err
		}
		if i > 0 {
			c.Differences = append(c.Differences, differenceOf(first, run))
			c.Warnings = append(c.Warnings, OtherJudge(first.Name, first.settings, run.Name, run.settings)...)
		}
	}
	c.Cases = len(c.Runs[0].ids)
	return c, nil
}

// readCompared reads the cases of a run that was reported.
func readCompared(command, dir string) (c Compared, err error) {
	c.Name, c.scores = filepath.Clean(dir), map[string]*float64{}
	path := filepath.Join(dir, CasesName)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return c, fmt.Errorf("%s: no such file: want a run that was reported (posttrain %s report --out %s)", path,
			command, dir)
	}
	sum := 0.0
	err = data.ReadLines(path, func(line int, r struct {
		ID    string   `json:"id"`
		Score *float64 `json:"score"`
	}) error {
		if _, twice := c.scores[r.ID]; twice || r.ID == "" {
			return fmt.Errorf("%s:%d: id %q is empty or is there twice: want a case as the stage report writes it",
				path, line, r.ID)
		}
		c.scores[r.ID], c.ids = r.Score, append(c.ids, r.ID)
		if r.Score != nil {
			c.Scored, sum = c.Scored+1, sum+*r.Score
		}
		return nil
	})
	if err == nil && c.Scored == 0 {
		err = fmt.Errorf("%s: no case has a score: want a run that was judged", path)
	}
	if err != nil {
		return c, err
	}
	c.Score = eval.Finite(sum / float64(c.Scored))
	c.settings, err = ReadSettings(dir)
	return c, err
}

// sameIDs wants runs over the same cases.
func sameIDs(first, run Compared) error {
	for _, id := range first.ids {
		if _, found := run.scores[id]; !found {
			return fmt.Errorf("%s has no case %s, which %s has: want runs over the same cases", run.Name, id,
				first.Name)
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

func differenceOf(from, to Compared) Difference {
	d := Difference{From: from.Name, To: to.Name}
	d.Score = eval.Paired(len(from.ids), func(second bool, i int) (float64, bool) {
		a, b := from.scores[from.ids[i]], to.scores[from.ids[i]]
		if a == nil || b == nil {
			return 0, false
		}
		if second {
			return *b, true
		}
		return *a, true
	})
	for _, id := range from.ids {
		switch a, b := from.scores[id], to.scores[id]; {
		case a == nil || b == nil:
		case *b > *a:
			d.Better++
		case *b < *a:
			d.Worse++
		default:
			d.Equal++
		}
	}
	return d
}

// OtherJudge says in what two runs were judged differently.
func OtherJudge(first string, a Settings, run string, b Settings) []string {
	x, y := a[StageJudge], b[StageJudge]
	for _, name := range []string{"kind", "model", "base_url", "prompts", "max_new_tokens", "logprobs", "baseline",
		"references"} {
		if x != nil && y != nil && x[name] != y[name] {
			return []string{fmt.Sprintf("%s was judged with %s %q, %s with %q: the differences are not those of the "+
				"agents alone", run, name, y[name], first, x[name])}
		}
	}
	return nil
}

// Write prints the comparison as a table for a terminal.
func (c *Comparison) Write(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "%d cases\tscore\twith a score\n", c.Cases)
	for _, r := range c.Runs {
		fmt.Fprintf(t, "%s\t%.2f\t%d\n", r.Name, *r.Score, r.Scored)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, d := range c.Differences {
		fmt.Fprintf(w, "%s against %s: %s; better in %d cases, worse in %d, equal in %d\n", d.To, d.From,
			d.Score.Scores(), d.Better, d.Worse, d.Equal)
	}
	for _, warning := range c.Warnings {
		if _, err := fmt.Fprintln(w, "warning:", warning); err != nil {
			return err
		}
	}
	return nil
}
