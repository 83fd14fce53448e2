package scorer

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/posttrain/posttrain/reward"
)

// FunctionOptions are those of the rewards that are functions of an answer and its row.
type FunctionOptions struct {
	Column  string `yaml:"column,omitempty" words:"the name of a column" help:"exact: the column with the right answer (answer)"`
	Pattern string `yaml:"pattern,omitempty" want:"@text" words:"a regular expression" flag:"pattern,exact" help:"pattern: regular expression that a good answer matches"`
}

// function is a reward that is a function: 1 for a good answer, 0 for others.
type function func(Answer) Score

// Batch is large: a score costs nothing.
func (function) Batch() int   { return 4096 }
func (function) Close() error { return nil }

func (f function) Score(_ context.Context, answers []Answer) ([]Score, error) {
	scores := make([]Score, len(answers))
	for i, a := range answers {
		scores[i] = f(a)
	}
	return scores, nil
}

// openExact compares an answer with the column that has the right one: as texts, or as numbers.
func openExact(o FunctionOptions) Source {
	column := cmp.Or(o.Column, "answer")
	return function(func(a Answer) Score {
		right := a.Row[column]
		if right == nil {
			return Score{Why: fmt.Sprintf("%s: the row has no %s, with which the reward exact compares answers",
				a.Source, column)}
		}
		return Score{Value: one(same(final(a.Response.Last()), final(fmt.Sprint(right))))}
	})
}

// openPattern looks for a pattern in answers.
func openPattern(o FunctionOptions) Source {
	p := regexp.MustCompile(o.Pattern) // Check has compiled it
	return function(func(a Answer) Score { return Score{Value: one(p.MatchString(a.Response.Last()))} })
}

func one(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// final is what a text ends in: the inside of its <answer> block, or what follows its last ####, or the whole.
func final(text string) string {
	if inside, has := reward.Answer(text); has {
		return inside
	}
	if at := strings.LastIndex(text, mark); at >= 0 {
		text = text[at+len(mark):]
	}
	return strings.TrimSpace(text)
}

// mark is what the answers of GSM8K have before the number.
const mark = "####"

// same compares texts, and numbers as numbers.
func same(a, b string) bool {
	x, err := strconv.ParseFloat(strings.ReplaceAll(a, ",", ""), 64)
	y, err2 := strconv.ParseFloat(strings.ReplaceAll(b, ",", ""), 64)
	return a == b || err == nil && err2 == nil && x == y
}
