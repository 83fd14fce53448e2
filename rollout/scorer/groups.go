package scorer

import (
	"fmt"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
)

// Group is a prompt with the answers that were sampled to it.
type Group struct {
	Prompt    data.Text
	Answers   []string
	Row       map[string]any // the other columns of the prompt's row
	Item      *ci.Item       // for the source ci; nil: none
	Prefilled bool           // the prompt ends inside the think block
	Source    string         // the prompt's row, for messages
}

// Answers lists the answers of all groups, one group after the other.
func Answers(groups []Group) (all []Answer) {
	for _, g := range groups {
		for _, text := range g.Answers {
			all = append(all, Answer{Prompt: g.Prompt, Response: g.Prompt.Reply(text), Source: g.Source, Row: g.Row,
				Item: g.Item, Prefilled: g.Prefilled})
		}
	}
	return all
}

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

// Pairs makes a pair of the best and the worst answer of each group, with their scores; those of all groups are in the
// order of [Answers]. Groups whose answers all score the same, whose best and worst answer are equal, or with fewer
// than two scored answers give no pair and are counted. A group of one answer, and groups without any pair, are errors.
func Pairs(groups []Group, scores []Score) ([]data.Preference, Tally, error) {
	t, pairs, sum := Tally{Prompts: len(groups)}, []data.Preference(nil), 0.0
	for _, g := range groups {
		if len(g.Answers) < 2 {
			return nil, t, fmt.Errorf("%s: %d answers: a pair wants two or more", g.Source, len(g.Answers))
		}
		texts, values := scored(g.Answers, scores[:len(g.Answers)])
		scores = scores[len(g.Answers):]
		t.Unscored += len(g.Answers) - len(values)
		for _, x := range values {
			sum += x
		}
		p, ok := data.BestWorst(g.Prompt, texts, values, g.Source)
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
	t.Mean, t.Gap = sum/float64(max(1, t.answers(groups))), t.Gap/float64(max(1, t.Pairs))
	if len(pairs) == 0 {
		return nil, t, fmt.Errorf("no prompt of %d gives a pair: %s (mean score %.4g); sample more answers or at "+
			"a higher temperature, or take another reward", t.Prompts, t.lost(), t.Mean)
	}
	return pairs, t, nil
}

// Table lists the answers that have a score, of the prompts with two or more.
func Table(groups []Group, scores []Score) (all []data.Answers) {
	for _, g := range groups {
		texts, values := scored(g.Answers, scores[:len(g.Answers)])
		if scores = scores[len(g.Answers):]; len(texts) > 1 {
			all = append(all, data.Answers{Prompt: g.Prompt, Texts: texts, Scores: values})
		}
	}
	return all
}

// answers counts those with a score.
func (t Tally) answers(groups []Group) (n int) {
	for _, g := range groups {
		n += len(g.Answers)
	}
	return n - t.Unscored
}

// scored leaves the answers that have a score.
func scored(all []string, scores []Score) (texts []string, values []float64) {
	for i, s := range scores {
		if s.Why == "" {
			texts, values = append(texts, all[i]), append(values, s.Value)
		}
	}
	return texts, values
}
