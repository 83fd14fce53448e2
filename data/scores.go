package data

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/posttrain/posttrain/internal/config/fault"
)

// PreferenceOptions says how preference rows are read.
type PreferenceOptions struct {
	// ScoreColumns names the columns with the scores of the chosen and of the rejected answer, a field of an object as
	// column.field; empty: the first pair of KnownScoreColumns that a row has, else the scores that the
	// two answers have among several.
	ScoreColumns []string `yaml:"score_columns" words:"two column names, for the chosen and the rejected score" flag:"score-columns" help:"two columns with the scores of chosen and rejected, such as a,b; empty: the known names"`
	// Columns are columns by other names in the file, each such as prompt=question.
	Columns []string `yaml:"-"`
	// ClassColumn names the column of [Preference.Class], which each row must have; "": none.
	ClassColumn string `yaml:"-"`
}

// Check names every fault of the options.
func (o PreferenceOptions) Check() []fault.Fault {
	faults := CheckColumns(o.Columns)
	if c := o.ScoreColumns; len(c) != 0 && (len(c) != 2 || c[0] == "" || c[1] == "" || c[0] == c[1]) {
		faults = append(faults, fault.Fault{Key: "score_columns", Value: fmt.Sprint(c), Problem: "want two column " +
			"names, the chosen answer's score and the rejected one's"})
	}
	return faults
}

// readScores fills the scores if the row has them, and returns the names of their columns.
func (p *Preference) readScores(fields map[string]any, o PreferenceOptions) (string, error) {
	pairs := KnownScoreColumns
	if len(o.ScoreColumns) == 2 {
		pairs = [][2]string{{o.ScoreColumns[0], o.ScoreColumns[1]}}
	}
	for _, names := range pairs {
		chosen, ok1, err1 := numberAt(fields, names[0])
		rejected, ok2, err2 := numberAt(fields, names[1])
		if err := cmp.Or(err1, err2); err != nil {
			return "", err
		}
		if ok1 && ok2 {
			p.ChosenScore, p.RejectedScore, p.Scored = chosen, rejected, true
			return names[0] + ", " + names[1], nil
		}
	}
	if len(o.ScoreColumns) == 2 {
		return "", nil
	}
	answers, _ := answersOf(fields) // of a row that has its pair, such lists may mean something else
	return answers.scoreOf(p), nil
}

// numberAt is numberOf of a column, or of a field of an object. Text of a table may be a number.
func numberAt(fields map[string]any, name string) (x float64, ok bool, err error) {
	value, _ := valueAt(fields, name)
	return numberOf(map[string]any{name: counted("chosen_score", value)}, name)
}

// scoredTexts are several answers to a prompt, with a score each.
type scoredTexts struct {
	texts   []string
	scores  []float64
	columns string
}

// HasAnswers says whether a row has several answers with scores.
func HasAnswers(fields map[string]any) bool {
	a, err := answersOf(fields)
	return a != nil || err != nil
}

// answersOf reads the first of KnownAnswerColumns that a row has; nil without any.
func answersOf(fields map[string]any) (*scoredTexts, error) {
	for _, names := range KnownAnswerColumns {
		texts, ok1 := fields[names[0]].([]any)
		scores, ok2 := fields[names[1]].([]any)
		if !ok1 || !ok2 {
			continue
		}
		if len(texts) != len(scores) || len(texts) < 2 {
			return nil, fmt.Errorf("%s has %d answers and %s %d scores: want as many scores as answers, two or more",
				names[0], len(texts), names[1], len(scores))
		}
		a := &scoredTexts{columns: names[0] + ", " + names[1]}
		for i := range texts {
			text, err1 := stringOf(fmt.Sprintf("%s[%d]", names[0], i), texts[i], "a string")
			place := fmt.Sprintf("%s[%d]", names[1], i)
			score, ok, err2 := numberOf(map[string]any{place: scores[i]}, place)
			if err := cmp.Or(err1, err2); err != nil {
				return nil, err
			}
			if !ok {
				return nil, fmt.Errorf("%s is null: want a finite number", place)
			}
			a.texts, a.scores = append(a.texts, text), append(a.scores, score)
		}
		return a, nil
	}
	return nil, nil
}

// pair makes a pair of the best and the worst answer.
func (a *scoredTexts) pair(r Row, err error) (pair Preference, columns, why string, _ error) {
	if err == nil && !r.Has("prompt") {
		err = errors.New("the row has answers and their scores, but no prompt")
	}
	var prompt Text
	if err == nil {
		prompt, err = textOf("prompt", r.Fields["prompt"])
	}
	if err != nil {
		return pair, "", "", err
	}
	pair, ok := BestWorst(prompt, a.texts, a.scores, r.Source)
	if !ok {
		return pair, "", "all answers, or their scores, are equal", nil
	}
	return pair, a.columns, "", nil
}

// scoreOf gives a pair the scores that its two answers have, if both are among the answers.
func (a *scoredTexts) scoreOf(p *Preference) (columns string) {
	if a == nil {
		return ""
	}
	var found [2]bool
	for i, text := range a.texts {
		for k, x := range []struct {
			answer Text
			score  *float64
		}{{p.Chosen, &p.ChosenScore}, {p.Rejected, &p.RejectedScore}} {
			if !found[k] && strings.TrimSpace(x.answer.Last()) == strings.TrimSpace(text) {
				*x.score, found[k] = a.scores[i], true
			}
		}
	}
	if p.Scored = found == [2]bool{true, true}; !p.Scored {
		return ""
	}
	return a.columns
}

// Last is the plain text, or the text of the last message.
func (t Text) Last() string {
	if n := len(t.Messages); n > 0 {
		return t.Messages[n-1].Content
	}
	return t.Plain
}

// BestWorst makes a pair of the best and the worst of several completions of one prompt, with their scores; among equal
// scores it takes the first. ok is false if all scores or both texts are equal: then there is nothing to learn. In a
// conversation a completion becomes a message of the assistant.
func BestWorst(prompt Text, completions []string, scores []float64, source string) (pair Preference, ok bool) {
	best, worst := 0, 0
	for i := range min(len(completions), len(scores)) {
		if scores[i] > scores[best] {
			best = i
		}
		if scores[i] < scores[worst] {
			worst = i
		}
	}
	if best == worst || completions[best] == completions[worst] {
		return Preference{}, false
	}
	return Preference{
		Prompt: prompt, Chosen: prompt.Reply(completions[best]), Rejected: prompt.Reply(completions[worst]),
		ChosenScore: scores[best], RejectedScore: scores[worst], Scored: true, Source: source,
	}, true
}

// Reply gives a completion the form of the prompt: a text, or a message of the assistant.
func (t Text) Reply(completion string) Text {
	if t.IsChat() {
		return Text{Messages: []Message{{Role: "assistant", Content: completion}}}
	}
	return Text{Plain: completion}
}
