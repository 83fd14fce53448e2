package scorer

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/reward"
)

// FunctionOptions are the options of rewards that are functions of an answer and its row.
type FunctionOptions struct {
	Column  string `yaml:"column,omitempty" words:"the name of a column" help:"exact: the column with the right answer (answer)"`
	Pattern string `yaml:"pattern,omitempty" want:"@text" words:"a regular expression" flag:"pattern,exact" help:"pattern: regular expression that a good answer matches"`
}

// openExact compares an answer with the column that has the right one: as texts, or as numbers.
func openExact(o FunctionOptions) ask.Judge {
	column := cmp.Or(o.Column, "answer")
	return ask.Rule(func(q *ask.Question, text string) ask.Score {
		right := q.Row[column]
		if right == nil {
			return ask.Score{Missing: fmt.Sprintf("%s: the row has no %s, with which the reward exact compares answers",
				q.Source, column)}
		}
		return ask.Score{Value: one(same(final(text), final(fmt.Sprint(right))))}
	})
}

// openPattern looks for a pattern in answers.
func openPattern(o FunctionOptions) ask.Judge {
	p := regexp.MustCompile(o.Pattern) // Check has compiled it
	return ask.Rule(func(_ *ask.Question, text string) ask.Score { return ask.Score{Value: one(p.MatchString(text))} })
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
