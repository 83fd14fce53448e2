// Package mtbench measures models with MT-Bench: a judge gives each of a model's answers to questions of two turns a
// score from 1 to 10.
package mtbench

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/posttrain/posttrain/eval"
)

// The forms of a score, the better one first.
var ratings = []*regexp.Regexp{regexp.MustCompile(`\[\[(\d+\.?\d*)\]\]`), regexp.MustCompile(`\[(\d+\.?\d*)\]`)}

// Rating reads the score in a judge's reply as the benchmark does: the first number in [[ ]], else the first in [ ]. A
// number above 10 is no score.
func Rating(reply string) (score float64, ok bool) {
	for _, form := range ratings {
		if found := form.FindStringSubmatch(reply); found != nil {
			score, err := strconv.ParseFloat(found[1], 64)
			return score, err == nil && score <= 10
		}
	}
	return 0, false
}

// temperatures are the benchmark's, by category.
var temperatures = map[string]float64{"writing": 0.7, "roleplay": 0.7, "extraction": 0, "math": 0, "coding": 0,
	"reasoning": 0, "stem": 0.1, "humanities": 0.1}

// Temperature is what the benchmark draws answers to a category's questions at.
func Temperature(category string) float64 {
	if t, known := temperatures[category]; known {
		return t
	}
	return 0.7
}

// Means are those of scores. Their intervals of 95 % are bootstraps over questions.
type Means struct {
	Score eval.Mean `json:"score"` // over all scores
	Turn1 eval.Mean `json:"turn_1"`
	Turn2 eval.Mean `json:"turn_2"`
}

func (m *Means) add(question, turn int, score float64) {
	m.Score.Add(question, score)
	if turn == 1 {
		m.Turn1.Add(question, score)
	} else {
		m.Turn2.Add(question, score)
	}
}

// Score is a model's result.
type Score struct {
	Model string `json:"model"`
	Means
	Categories []Category `json:"categories,omitempty"`
	Judged     int        `json:"judged"`  // answers with a score
	Missing    int        `json:"missing"` // answers whose judge gave no score: they do not count
}

// Category is a model's result on the questions of a category.
type Category struct {
	Name string `json:"category"`
	Means
}

// Count counts the judgements of each model, in the order in which the models come. questions may be nil: then there
// are no categories.
func Count(all []Judgement, questions []Question) ([]Score, error) {
	c := counting{number: map[string]int{}, category: map[string]string{}}
	for i, q := range questions {
		c.number[q.ID], c.category[q.ID] = i, q.Category
		if !slices.Contains(c.categories, q.Category) {
			c.categories = append(c.categories, q.Category)
		}
	}
	for _, j := range all {
		if _, known := c.number[j.Question]; !known && questions != nil {
			return nil, fmt.Errorf("%s: question %s is not among the questions", j.Source, j.Question)
		} else if !known {
			c.number[j.Question] = len(c.number)
		}
		c.add(j)
	}
	for _, s := range c.scores {
		if s.Judged == 0 {
			return nil, fmt.Errorf("no judgement of %s has a score", s.Model)
		}
	}
	return c.scores, nil
}

// counting is a count under way.
type counting struct {
	number     map[string]int    // by question
	category   map[string]string // by question
	categories []string
	scores     []Score
}

func (c *counting) add(j Judgement) {
	at := slices.IndexFunc(c.scores, func(s Score) bool { return s.Model == j.Model })
	if at < 0 {
		at = len(c.scores)
		c.scores = append(c.scores, Score{Model: j.Model})
		for _, name := range c.categories {
			c.scores[at].Categories = append(c.scores[at].Categories, Category{Name: name})
		}
	}
	s := &c.scores[at]
	if j.Score == NoScore {
		s.Missing++
		return
	}
	s.Judged++
	s.add(c.number[j.Question], j.Turn, j.Score)
	if i := slices.Index(c.categories, c.category[j.Question]); i >= 0 {
		s.Categories[i].add(c.number[j.Question], j.Turn, j.Score)
	}
}

// String gives the score in words.
func (s *Score) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s; turn 1 %s; turn 2 %s\n", s.Model, s.Score, s.Turn1, s.Turn2)
	for _, c := range s.Categories {
		fmt.Fprintf(&b, "  %-11s %s\n", c.Name, c.Score)
	}
	return b.String()
}

// Warning says how many judgements do not count, "" if all do.
func (s *Score) Warning() string {
	if s.Missing == 0 {
		return ""
	}
	return fmt.Sprintf("%s: %d of %d judgements have no score: they do not count", s.Model, s.Missing,
		s.Missing+s.Judged)
}
