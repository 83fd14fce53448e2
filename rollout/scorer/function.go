package scorer

import (
	"cmp"
	"fmt"
	"math/big"
	"regexp"
	"strings"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/internal/float"
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
		return ask.Score{Value: float.Indicator(same(text, fmt.Sprint(right)))}
	})
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
