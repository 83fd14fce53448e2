package data

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"

	"github.com/parquet-go/parquet-go"

	"github.com/posttrain/posttrain/data/internal/rows"
)

// WritePreferences writes pairs with the columns prompt, chosen, rejected and, for scored pairs, chosen_score and
// rejected_score. The extension of the file's name says how: .jsonl (JSON lines), .json (an array) or .parquet, each
// also with .gz. The file appears whole or not at all: it gets a temporary name beside path first, then its own.
func WritePreferences(path string, pairs []Preference) error {
	return WritePreferenceSeq(path, Values(pairs))
}

// WritePreferenceSeq is WritePreferences of pairs that need not be in memory. They are read twice for .parquet, whose
// columns must be known before the first row. An error among the pairs ends the writing.
func WritePreferenceSeq(path string, pairs iter.Seq2[Preference, error]) error {
	return rows.Table{
		Values:  each(pairs, preferenceLine),
		Parquet: func(w io.Writer) error { return preferenceParquet(w, pairs) },
	}.Write(path)
}

// WriteDemonstrations writes demonstrations with the columns prompt and completion, or text where there is no prompt,
// in the forms of WritePreferences.
func WriteDemonstrations(path string, demos []Demonstration) error {
	return WriteDemonstrationSeq(path, Values(demos))
}

// WriteDemonstrationSeq is to WriteDemonstrations what WritePreferenceSeq is to WritePreferences.
func WriteDemonstrationSeq(path string, demos iter.Seq2[Demonstration, error]) error {
	return rows.Table{
		Values:  each(demos, func(d Demonstration) (any, error) { return demonstrationLine(d), nil }),
		Parquet: func(w io.Writer) error { return demonstrationParquet(w, demos) },
	}.Write(path)
}

// WriteLabelled writes answers with the columns prompt, completion and label, in the forms of WritePreferences.
func WriteLabelled(path string, all []Labelled) error { return WriteLabelledSeq(path, Values(all)) }

// WriteLabelledSeq is to WriteLabelled what WritePreferenceSeq is to WritePreferences.
func WriteLabelledSeq(path string, all iter.Seq2[Labelled, error]) error {
	return rows.Table{
		Values: each(all, func(a Labelled) (any, error) {
			return labelledJSON{a.Prompt.value(), a.Completion.value(), a.Desirable, toolsIn(a.Prompt, a.Completion)}, nil
		}),
		Parquet: func(w io.Writer) error { return labelledParquet(w, all) },
	}.Write(path)
}

// Values are the elements of a slice as a sequence without errors.
func Values[T any](all []T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, value := range all {
			if !yield(value, nil) {
				return
			}
		}
	}
}

// each makes something of every record; the first error ends it.
func each[T, U any](records iter.Seq2[T, error], of func(T) (U, error)) iter.Seq2[U, error] {
	return func(yield func(U, error) bool) {
		for record, err := range records {
			var made U
			if err == nil {
				made, err = of(record)
			}
			if !yield(made, err) || err != nil {
				return
			}
		}
	}
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
	Tools         any      `json:"tools,omitempty"`
}

type demonstrationJSON struct {
	Prompt     any `json:"prompt,omitempty"`
	Completion any `json:"completion,omitempty"`
	Text       any `json:"text,omitempty"`
	Tools      any `json:"tools,omitempty"`
}

type labelledJSON struct {
	Prompt     any  `json:"prompt"`
	Completion any  `json:"completion"`
	Label      bool `json:"label"`
	Tools      any  `json:"tools,omitempty"`
}

func preferenceLine(p Preference) (any, error) {
	line := preferenceJSON{Prompt: p.Prompt.value(), Chosen: p.Chosen.value(), Rejected: p.Rejected.value(),
		Tools: toolsIn(p.Prompt, p.Chosen)}
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

// bare says that the demonstration is text without a prompt.
func (d Demonstration) bare() bool { return d.Prompt.Empty() && !d.Completion.IsChat() }

func demonstrationLine(d Demonstration) any {
	if d.bare() {
		return demonstrationJSON{Text: d.Completion.value()}
	}
	return demonstrationJSON{Prompt: d.Prompt.value(), Completion: d.Completion.value(),
		Tools: toolsIn(d.Prompt, d.Completion)}
}

// value is the text as a JSON column: a string or a list of {role, content}.
func (t Text) value() any {
	if !t.IsChat() {
		return t.Plain
	}
	messages := make([]any, len(t.Messages))
	for i, m := range t.Messages {
		messages[i] = m.value()
	}
	return messages
}

func (m Message) value() any {
	whole, err := rows.Decode([]byte(m.Whole))
	object, is := whole.(rows.Object)
	if err != nil || !is {
		return messageJSON{m, m.train()}
	}
	if m.Untrained {
		object = append(object, rows.Entry{Key: "train", Value: false})
	}
	return object
}

// toolsIn are the tools of a conversation, which its first message has; nil if it has no tools.
func toolsIn(texts ...Text) any {
	for _, t := range texts {
		if len(t.Messages) > 0 {
			if t.Messages[0].Tools == "" {
				return nil
			}
			return json.RawMessage(t.Messages[0].Tools)
		}
	}
	return nil
}

type messageJSON struct {
	Message
	Train *bool `json:"train,omitempty"`
}

// train is false for an untrained message, else nil.
func (m Message) train() *bool {
	if m.Untrained {
		return new(bool)
	}
	return nil
}

// forms counts the texts that are strings and those that are conversations.
type forms struct {
	plain, chats int
	untrained    bool // a message has "train": false
	tools        bool // a conversation has tools, or calls them
}

func (f *forms) add(texts ...Text) {
	for _, t := range texts {
		if t.IsChat() {
			f.chats++
			f.untrained = f.untrained || len(t.Trained()) < len(t.Messages)
			f.tools = f.tools || slices.ContainsFunc(t.Messages, func(m Message) bool { return m.Whole+m.Tools != "" })
		} else {
			f.plain++
		}
	}
}

// column is the parquet type of a column of such texts: a string or a list of {role, content}, the same for all texts.
func (f *forms) column() (parquet.Node, error) {
	switch {
	case f.tools:
		return nil, errors.New("some conversations have tools or messages with more than role and content, which no " +
			"parquet column here can hold: write .jsonl")
	case f.chats == 0:
		return parquet.String(), nil
	case f.plain == 0:
		message := parquet.Group{"role": parquet.String(), "content": parquet.String()}
		if f.untrained {
			message["train"] = parquet.Optional(parquet.Leaf(parquet.BooleanType))
		}
		return parquet.List(message), nil
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
		message := map[string]any{"role": m.Role, "content": m.Content}
		if m.Untrained {
			message["train"] = m.train()
		}
		messages[i] = message
	}
	return messages
}

func preferenceParquet(w io.Writer, pairs iter.Seq2[Preference, error]) error {
	var texts forms
	margins := false
	for p, err := range pairs {
		if err == nil {
			_, err = preferenceLine(p)
		}
		if err != nil {
			return err
		}
		texts.add(p.Prompt, p.Chosen, p.Rejected)
		margins = margins || p.Margin
	}
	column, err := texts.column()
	if err != nil {
		return err
	}
	score := parquet.Optional(parquet.Leaf(parquet.DoubleType))
	group := parquet.Group{"prompt": column, "chosen": column, "rejected": column, "chosen_score": score,
		"rejected_score": score}
	if margins {
		group[marginColumn] = score
	}
	return rows.WriteParquet(w, each(pairs, preferenceCells), parquet.NewSchema("preference", group))
}

func preferenceCells(p Preference) (any, error) {
	row := map[string]any{"prompt": p.Prompt.cell(), "chosen": p.Chosen.cell(), "rejected": p.Rejected.cell()}
	if p.Margin {
		row[marginColumn] = &p.ChosenScore
	} else if p.Scored {
		row["chosen_score"], row["rejected_score"] = &p.ChosenScore, &p.RejectedScore // a plain 0 becomes null
	}
	return row, nil
}

func demonstrationParquet(w io.Writer, demos iter.Seq2[Demonstration, error]) error {
	var texts forms
	bare, all := 0, 0
	for d, err := range demos {
		if err != nil {
			return err
		}
		if all++; d.bare() {
			bare++
		} else {
			texts.add(d.Prompt, d.Completion)
		}
	}
	cells := each(demos, demonstrationCells)
	if bare == all {
		return rows.WriteParquet(w, cells, parquet.NewSchema("text", parquet.Group{"text": parquet.String()}))
	}
	if bare > 0 {
		return errors.New("some demonstrations have a prompt and some are bare text, which one table cannot hold: " +
			"write .jsonl")
	}
	column, err := texts.column()
	if err != nil {
		return err
	}
	return rows.WriteParquet(w, cells, parquet.NewSchema("demonstration",
		parquet.Group{"prompt": column, "completion": column}))
}

func demonstrationCells(d Demonstration) (any, error) {
	if d.bare() {
		return map[string]any{"text": d.Completion.cell()}, nil
	}
	return map[string]any{"prompt": d.Prompt.cell(), "completion": d.Completion.cell()}, nil
}

func labelledParquet(w io.Writer, all iter.Seq2[Labelled, error]) error {
	var texts forms
	for a, err := range all {
		if err != nil {
			return err
		}
		texts.add(a.Prompt, a.Completion)
	}
	column, err := texts.column()
	if err != nil {
		return err
	}
	cells := func(a Labelled) (any, error) {
		return map[string]any{"prompt": a.Prompt.cell(), "completion": a.Completion.cell(), "label": a.Desirable}, nil
	}
	return rows.WriteParquet(w, each(all, cells), parquet.NewSchema("labelled",
		parquet.Group{"prompt": column, "completion": column, "label": parquet.Leaf(parquet.BooleanType)}))
}
