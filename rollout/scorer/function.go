package scorer

import (
	"cmp"
	"context"
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/float"
	"github.com/posttrain/posttrain/reward"
)

// FunctionOptions are the options of rewards that are functions of an answer and its row.
type FunctionOptions struct {
	Column  string `yaml:"column,omitempty" words:"the name of a column" help:"exact: the column with the right answer (answer)"`
	Pattern string `yaml:"pattern,omitempty" want:"@text" words:"a regular expression" flag:"pattern,exact" help:"pattern: regular expression that a good answer matches"`
}

// exact compares an answer with the column that has the right one, or a list of them: as texts, or as numbers.
type exact struct {
	ask.Rule
	column string
}

func openExact(o FunctionOptions) ask.Judge {
	column := cmp.Or(o.Column, usualColumn)
	return exact{column: column, Rule: func(q *ask.Question, text string) ask.Score {
		right := rightOnes(q.Row[column])
		if len(right) == 0 {
			return ask.Score{Missing: fmt.Sprintf("%s: the row has no %s, with which the reward exact compares answers",
				q.Source, column)}
		}
		is := func(x any) bool { return same(text, fmt.Sprint(x)) }
		return ask.Score{Value: float.Indicator(slices.ContainsFunc(right, is))}
	}}
}

// Score refuses a column that no answer can equal.
func (e exact) Score(ctx context.Context, answers []ask.Answer) ([]ask.Score, error) {
	for i := range answers {
		q := answers[i].To
		for _, x := range rightOnes(q.Row[e.column]) {
			switch x.(type) {
			case nil, []any, map[string]any:
				return nil, fmt.Errorf("%s: %s has %s, with which the reward exact cannot compare answers: want a text, "+
					"a number, or a list of them", q.Source, e.column, data.KindOf(x))
			}
		}
	}
	return e.Rule.Score(ctx, answers)
}

// rightOnes are the right answers of a column: each of a list is one.
func rightOnes(value any) []any {
	if list, is := value.([]any); is || value == nil {
		return list
	}
	return []any{value}
}

// openPattern looks for a pattern in answers.
func openPattern(o FunctionOptions) ask.Judge {
	p := regexp.MustCompile(o.Pattern) // Check has compiled it
	return ask.Rule(func(_ *ask.Question, text string) ask.Score {
		return ask.Score{Value: float.Indicator(p.MatchString(text))}
	})
}

// final is what a text ends in: the inside of its <answer> block, or all of it, from the last #### on that a number
// follows, or from the last one. marked says that there is one.
func final(text string) (end string, marked bool) {
	if inside, has := reward.Answer(text); has {
		text = inside
	}
	from := strings.LastIndex(text, mark)
	for at := from; at >= 0; at = strings.LastIndex(text[:at], mark) {
		if leading.MatchString(text[at+len(mark):]) {
			from = at
			break
		}
	}
	if from < 0 {
		return strings.TrimSpace(text), false
	}
	return strings.TrimSpace(text[from+len(mark):]), true
}

// mark is what the answers of GSM8K have before the number.
const mark = "####"

// leading is the number that a text begins with, as lm-evaluation-harness and verl read GSM8K's answers: a currency is
// left out here, commas and a last full stop in [number]. An exponent has few digits, so that no number is huge.
var leading = regexp.MustCompile(`^\s*([-+−]?)\s*\p{Sc}?\s*([-+−]?)` +
	`((?:[0-9][0-9,]*(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?)`)

// number is the number that a text is, or behind a mark the one that it begins with; nil if it has
// no number. Units, and what else an answer says, may follow a marked number.
func number(text string, marked bool) *big.Rat {
	m := leading.FindStringSubmatch(text)
	if m == nil || !marked && m[0] != text {
		return nil
	}
	sign := strings.ReplaceAll(m[1]+m[2], "−", "-")
	x, ok := new(big.Rat).SetString(sign + strings.TrimSuffix(strings.ReplaceAll(m[3], ",", ""), "."))
	if !ok {
		return nil
	}
	return x
}

// same compares the ends of two texts: as texts, as the right one with the first line of a marked answer, and as
// numbers, of any size.
func same(answer, right string) bool {
	a, marked := final(answer)
	b, of := final(right)
	if first, _, _ := strings.Cut(a, "\n"); a == b || marked && strings.TrimSpace(first) == b {
		return true
	}
	x, y := number(a, marked), number(b, of)
	return x != nil && y != nil && x.Cmp(y) == 0
}
