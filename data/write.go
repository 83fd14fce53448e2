package data

import (
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/parquet-go/parquet-go"

	"github.com/posttrain/posttrain/data/internal/rows"
)

// WritePreferences writes pairs with the columns prompt, chosen, rejected and, for scored pairs, chosen_score and
// rejected_score. The extension of the file's name says how: .jsonl (JSON lines), .json (an array) or .parquet, each
// also with .gz. The file appears whole or not at all: it gets a temporary name beside path first, then its own.
func WritePreferences(path string, pairs []Preference) error {
	return rows.Table{
		N:       len(pairs),
		Value:   func(i int) (any, error) { return preferenceLine(pairs[i]) },
		Parquet: func(w io.Writer) error { return preferenceParquet(w, pairs) },
	}.Write(path)
}

// WriteDemonstrations writes demonstrations with the columns prompt and completion, or text where there is no prompt,
// in the forms of WritePreferences.
func WriteDemonstrations(path string, demos []Demonstration) error {
	return rows.Table{
		N:       len(demos),
		Value:   func(i int) (any, error) { return demonstrationLine(demos[i]), nil },
		Parquet: func(w io.Writer) error { return demonstrationParquet(w, demos) },
	}.Write(path)
}

// WriteLabelled writes answers with the columns prompt, completion and label, in the forms of WritePreferences.
func WriteLabelled(path string, all []Labelled) error {
	return rows.Table{
		N: len(all),
		Value: func(i int) (any, error) {
			a := all[i]
			return labelledJSON{a.Prompt.value(), a.Completion.value(), a.Desirable}, nil
		},
		Parquet: func(w io.Writer) error { return labelledParquet(w, all) },
	}.Write(path)
}

// CheckWritable refuses a file name whose extension no writer has.
func CheckWritable(name string) error { return rows.CheckWritable(name) }

type preferenceJSON struct {
	Prompt        any      `json:"prompt"`
	Chosen        any      `json:"chosen"`
	Rejected      any      `json:"rejected"`
	ChosenScore   *float64 `json:"chosen_score,omitempty"`
	RejectedScore *float64 `json:"rejected_score,omitempty"`
	Margin        *float64 `json:"margin,omitempty"`
}

type demonstrationJSON struct {
	Prompt     any `json:"prompt,omitempty"`
	Completion any `json:"completion,omitempty"`
	Text       any `json:"text,omitempty"`
}

type labelledJSON struct {
	Prompt     any  `json:"prompt"`
	Completion any  `json:"completion"`
	Label      bool `json:"label"`
}

func preferenceLine(p Preference) (any, error) {
	line := preferenceJSON{Prompt: p.Prompt.value(), Chosen: p.Chosen.value(), Rejected: p.Rejected.value()}
	if p.Scored {
		if sum := p.ChosenScore + p.RejectedScore; math.IsNaN(sum) || math.IsInf(sum, 0) {
			return nil, fmt.Errorf("pair from %s: scores %v and %v: want finite numbers", p.Source, p.ChosenScore,
				p.RejectedScore)
		}
		if p.Margin {
			line.Margin = &p.ChosenScore
		} else {
			line.ChosenScore, line.RejectedScore = &p.ChosenScore, &p.RejectedScore
		}
	}
	return line, nil
}

func demonstrationLine(d Demonstration) any {
	if d.Prompt.Empty() && !d.Completion.IsChat() {
		return demonstrationJSON{Text: d.Completion.value()}
	}
	return demonstrationJSON{Prompt: d.Prompt.value(), Completion: d.Completion.value()}
}

// value is the text as a JSON column: a string or a list of {role, content}.
func (t Text) value() any {
	if t.IsChat() {
		return t.Messages
	}
	return t.Plain
}

// textColumn is the parquet type of a column of texts: a string or a list of {role, content}, the same for all texts.
func textColumn(texts []Text) (parquet.Node, error) {
	chats := 0
	for _, t := range texts {
		if t.IsChat() {
			chats++
		}
	}
	switch chats {
	case 0:
		return parquet.String(), nil
	case len(texts):
		return parquet.List(parquet.Group{"role": parquet.String(), "content": parquet.String()}), nil
	}
	return nil, errors.New("some texts are strings and some conversations, which one parquet column cannot hold: " +
		"write .jsonl")
}

// cell is the text in the form of the parquet writer.
func (t Text) cell() any {
	if !t.IsChat() {
		return t.Plain
	}
	messages := make([]any, len(t.Messages))
	for i, m := range t.Messages {
		messages[i] = map[string]any{"role": m.Role, "content": m.Content}
	}
	return messages
}

func preferenceParquet(w io.Writer, pairs []Preference) error {
	var texts []Text
	cells, margins := make([]any, len(pairs)), false
	for i, p := range pairs {
		if _, err := preferenceLine(p); err != nil {
			return err
		}
		texts = append(texts, p.Prompt, p.Chosen, p.Rejected)
		row := map[string]any{"prompt": p.Prompt.cell(), "chosen": p.Chosen.cell(), "rejected": p.Rejected.cell()}
		if p.Margin {
			row[marginColumn], margins = &p.ChosenScore, true
		} else if p.Scored {
			row["chosen_score"], row["rejected_score"] = &p.ChosenScore, &p.RejectedScore // a plain 0 becomes null
		}
		cells[i] = row
	}
	column, err := textColumn(texts)
	if err != nil {
		return err
	}
	score := parquet.Optional(parquet.Leaf(parquet.DoubleType))
	group := parquet.Group{"prompt": column, "chosen": column, "rejected": column, "chosen_score": score,
		"rejected_score": score}
	if margins {
		group[marginColumn] = score
	}
	return rows.WriteParquet(w, cells, parquet.NewSchema("preference", group))
}

func demonstrationParquet(w io.Writer, demos []Demonstration) error {
	var texts []Text
	cells := make([]any, len(demos))
	bare := 0
	for i, d := range demos {
		if d.Prompt.Empty() && !d.Completion.IsChat() {
			bare++
			cells[i] = map[string]any{"text": d.Completion.cell()}
			continue
		}
		texts = append(texts, d.Prompt, d.Completion)
		cells[i] = map[string]any{"prompt": d.Prompt.cell(), "completion": d.Completion.cell()}
	}
	if bare == len(demos) {
		return rows.WriteParquet(w, cells, parquet.NewSchema("text", parquet.Group{"text": parquet.String()}))
	}
	if bare > 0 {
		return errors.New("some demonstrations have a prompt and some are bare text, which one table cannot hold: " +
			"write .jsonl")
	}
	column, err := textColumn(texts)
	if err != nil {
		return err
	}
	return rows.WriteParquet(w, cells, parquet.NewSchema("demonstration",
		parquet.Group{"prompt": column, "completion": column}))
}

func labelledParquet(w io.Writer, all []Labelled) error {
	var texts []Text
	cells := make([]any, len(all))
	for i, a := range all {
		texts = append(texts, a.Prompt, a.Completion)
		cells[i] = map[string]any{"prompt": a.Prompt.cell(), "completion": a.Completion.cell(), "label": a.Desirable}
	}
	column, err := textColumn(texts)
	if err != nil {
		return err
	}
	return rows.WriteParquet(w, cells, parquet.NewSchema("labelled",
		parquet.Group{"prompt": column, "completion": column, "label": parquet.Leaf(parquet.BooleanType)}))
}
