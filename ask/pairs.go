package ask

import (
	"fmt"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/data"
)

// Tally counts what became of groups.
type Tally struct {
	Prompts  int `json:"prompts"`
	Pairs    int `json:"pairs"`
	Ties     int `json:"ties"`     // prompts whose answers all score the same
	Equal    int `json:"equal"`    // prompts whose best and worst answer are the same text
	Short    int `json:"short"`    // prompts with fewer than two answers that have a score
	Unscored int `json:"unscored"` // answers

	Mean float64 `json:"mean"` // of the scores
	Gap  float64 `json:"gap"`  // mean difference of the best and the worst score of a pair
}

// String says it in a line.
func (t Tally) String() string {
	text := fmt.Sprintf("%d pairs of %d prompts, mean score %.4g", t.Pairs, t.Prompts, t.Mean)
	if t.Pairs > 0 {
		text += fmt.Sprintf(", mean gap %.4g", t.Gap)
	}
	if lost := t.lost(); lost != "" {
		text += "; without a pair: " + lost
	}
	if t.Unscored > 0 {
		text += fmt.Sprintf("; %d answers have no score", t.Unscored)
	}
	return text
}

// lost says why prompts give no pair.
func (t Tally) lost() string {
	var parts []string
	for _, part := range []struct {
		n   int
		why string
	}{{t.Ties, "all answers score the same"}, {t.Equal, "the best and the worst answer are equal"},
		{t.Short, "fewer than two answers have a score"}} {
		if part.n > 0 {
			parts = append(parts, fmt.Sprintf("%d (%s)", part.n, part.why))
		}
	}
	return strings.Join(parts, ", ")
}

// Pairs makes a pair of the best and the worst answer of each group, with their scores; a group are the answers to one
// question. Groups whose answers all score the same, whose best and worst answer are equal, or with fewer than two
// scored answers give no pair and are counted. A group of one answer, and groups without any pair, are errors.
func Pairs(groups [][]Answer) ([]data.Preference, Tally, error) {
	t, pairs, sum, all := Tally{Prompts: len(groups)}, []data.Preference(nil), 0.0, 0
	for _, g := range groups {
		to := g[0].To
		if len(g) < 2 {
			return nil, t, fmt.Errorf("%s: %d answers: a pair wants two or more", to.Source, len(g))
		}
		texts, values := scored(g)
		t.Unscored, all = t.Unscored+len(g)-len(values), all+len(values)
		for _, x := range values {
			sum += x
		}
		p, ok := data.BestWorst(to.Prompt, texts, values, to.Source)
		switch {
		case ok:
			pairs, t.Pairs, t.Gap = append(pairs, p), t.Pairs+1, t.Gap+p.ChosenScore-p.RejectedScore
		case len(values) < 2:
			t.Short++
		case slices.Min(values) == slices.Max(values):
			t.Ties++
		default:
			t.Equal++
		}
	}
	t.Mean, t.Gap = sum/float64(max(1, all)), t.Gap/float64(max(1, t.Pairs))
	if len(pairs) == 0 {
		return nil, t, fmt.Errorf("no prompt of %d gives a pair: %s (mean score %.4g); sample more answers or at "+
			"a higher temperature, or take another reward", t.Prompts, t.lost(), t.Mean)
	}
	return pairs, t, nil
}

// Table lists the answers that have a score, of the questions with two or more.
func Table(groups [][]Answer) (all []data.Answers) {
	for _, g := range groups {
		if texts, values := scored(g); len(texts) > 1 {
			all = append(all, data.Answers{Prompt: g[0].To.Prompt, Texts: texts, Scores: values})
		}
	}
	return all
}

// scored are the answers that have a score.
func scored(group []Answer) (texts []string, values []float64) {
	for i := range group {
		if a := &group[i]; a.Score.Missing == "" {
			texts, values = append(texts, a.To.Head()+a.Text), append(values, a.Score.Value)
		}
	}
	return texts, values
}
