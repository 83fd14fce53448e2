// Package mtbench measures models with MT-Bench: a judge gives each of a model's answers to questions of two turns a
// score from 1 to 10.
package mtbench

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/eval/bench"
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

// Means are mean scores. Their intervals of 95 % are bootstraps over questions.
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

// Result is what was measured. It is the form of summary.json.
type Result struct {
	Model string `json:"model"`
	Judge string `json:"judge"`
	// how often the judge has rated each answer
	Ratings int `json:"ratings"`
	Means
	Categories []Category     `json:"categories"` // in the order of the questions
	Judged     int            `json:"judged"`     // answers with a score
	Missing    int            `json:"missing"`    // answers whose judge gave no score: they do not count
	Warnings   []string       `json:"warnings,omitempty"`
	Settings   bench.Settings `json:"settings"` // of the run's stages
}

// Category is the result on the questions of a category.
type Category struct {
	Name string `json:"category"`
	Means
}

// add counts a score, nil if the judge gave none.
func (s *Result) add(question int, category string, turn int, score *float64) {
	at := slices.IndexFunc(s.Categories, func(c Category) bool { return c.Name == category })
	if at < 0 {
		at = len(s.Categories)
		s.Categories = append(s.Categories, Category{Name: category})
	}
	if score == nil {
		s.Missing++
		return
	}
	s.Judged++
	s.Means.add(question, turn, *score)
	s.Categories[at].add(question, turn, *score)
}

// String gives the score in words.
func (s *Result) String() string {
	judge := s.Judge
	if s.Ratings > 1 {
		judge += fmt.Sprintf(", the mean of %d ratings of each answer", s.Ratings)
	}
	text := fmt.Sprintf("judge: %s\n%s: %s; turn 1 %s; turn 2 %s\n", judge, s.Model, s.Score, s.Turn1, s.Turn2)
	for _, c := range s.Categories {
		text += fmt.Sprintf("  %-11s %s\n", c.Name, c.Score)
	}
	return text + bench.Warned(s.Warnings)
}
