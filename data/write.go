package data

import (
	"fmt"
	"io"
	"math"

	"github.com/posttrain/posttrain/data/internal/rows"
)

// WritePreferences writes pairs with the columns prompt, chosen, rejected and, for scored pairs, chosen_score and
// rejected_score: as JSON lines, a JSON array or parquet, by the extension of the file's name (.jsonl, .json or .parquet,
// each also with .gz). The file appears whole or not at all: it is written beside path under a temporary name and
// renamed.
func WritePreferences(path string, pairs []Preference) error {
	return rows.Table{
		N:       len(pairs),
		Value:   func(i int) (any, error) { return preferenceLine(pairs[i]) },
		Parquet: func(w io.Writer) error { return preferenceParquet(w, pairs) },
	}.Write(path)
}

// WriteDemonstrations writes demonstrations with the columns prompt and completion, or text where there is no prompt, in
// the forms of WritePreferences.
func WriteDemonstrations(path string, demos []Demonstration) error {
	return rows.Table{
		N:       len(demos),
		Value:   func(i int) (any, error) { return demonstrationLine(demos[i]), nil },
		Parquet: func(w io.Writer) error { return demonstrationParquet(w, demos) },
	}.Write(path)
}

// CheckWritable says whether records can be written under a name, nil when they can.
func CheckWritable(name string) error { return rows.CheckWritable(name) }

type preferenceJSON struct {
	Prompt        any      `json:"prompt"`
	Chosen        any      `json:"chosen"`
	Rejected      any      `json:"rejected"`
	ChosenScore   *float64 `json:"chosen_score,omitempty"`
	RejectedScore *float64 `json:"rejected_score,omitempty"`
}

type demonstrationJSON struct {
	Prompt     any `json:"prompt,omitempty"`
	Completion any `json:"completion,omitempty"`
	Text       any `json:"text,omitempty"`
}

func preferenceLine(p Preference) (any, error) {
	line := preferenceJSON{Prompt: p.Prompt.value(), Chosen: p.Chosen.value(), Rejected: p.Rejected.value()}
	if p.Scored {
		if sum := p.ChosenScore + p.RejectedScore; math.IsNaN(sum) || math.IsInf(sum, 0) {
			return nil, fmt.Errorf("pair from %s: scores %v and %v: want finite numbers", p.Source, p.ChosenScore, p.RejectedScore)
		}
		line.ChosenScore, line.RejectedScore = &p.ChosenScore, &p.RejectedScore
	}
	return line, nil
}

func demonstrationLine(d Demonstration) any {
	if d.Prompt.Empty() && !d.Completion.IsChat() {
		return demonstrationJSON{Text: d.Completion.value()}
	}
	return demonstrationJSON{Prompt: d.Prompt.value(), Completion: d.Completion.value()}
}

// value is the text as a column holds it: a string or a list of {role, content}.
func (t Text) value() any {
	if t.IsChat() {
		return t.Messages
	}
	return t.Plain
}
