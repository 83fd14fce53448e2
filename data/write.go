package data

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"math"
	"slices"

	"github.com/parquet-go/parquet-go"
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
	return writeRows(path, each(pairs, func(p Preference) ([]cell, error) {
		row := []cell{{"prompt", p.Prompt}, {"chosen", p.Chosen}, {"rejected", p.Rejected}}
		if sum := p.ChosenScore + p.RejectedScore; p.Scored && (math.IsNaN(sum) || math.IsInf(sum, 0)) {
			return nil, fmt.Errorf("pair from %s: scores %v and %v: want finite numbers", p.Source, p.ChosenScore,
				p.RejectedScore)
		}
		if p.Margin {
			row = append(row, cell{marginColumn, p.ChosenScore})
		} else if p.Scored {
			row = append(row, cell{"chosen_score", p.ChosenScore}, cell{"rejected_score", p.RejectedScore})
		}
		return append(row, toolsIn(p.Prompt, p.Chosen)...), nil
	}))
}

// WriteDemonstrations writes demonstrations with the columns prompt and completion, or text where there is no prompt,
// in the forms of WritePreferences.
func WriteDemonstrations(path string, demos []Demonstration) error {
	return WriteDemonstrationSeq(path, Values(demos))
}

// WriteDemonstrationSeq is to WriteDemonstrations what WritePreferenceSeq is to WritePreferences.
func WriteDemonstrationSeq(path string, demos iter.Seq2[Demonstration, error]) error {
	return writeRows(path, each(demos, func(d Demonstration) ([]cell, error) {
		if d.Prompt.Empty() && !d.Completion.IsChat() {
			return []cell{{"text", d.Completion}}, nil
		}
		return append([]cell{{"prompt", d.Prompt}, {"completion", d.Completion}}, toolsIn(d.Prompt, d.Completion)...), nil
	}))
}

// WriteLabelledSeq writes answers with the columns prompt, completion and label, as WritePreferenceSeq does.
func WriteLabelledSeq(path string, all iter.Seq2[Labelled, error]) error {
	return writeRows(path, each(all, func(a Labelled) ([]cell, error) {
		return append([]cell{{"prompt", a.Prompt}, {"completion", a.Completion}, {"label", a.Desirable}},
			toolsIn(a.Prompt, a.Completion)...), nil
	}))
}

// Answers are several completions of a prompt, with a score each.
type Answers struct {
	Prompt Text
	Texts  []string
	Scores []float64
}

// WriteAnswers writes answers with the columns prompt, all_generated_responses and all_rm_scores, in the forms of
// [WritePreferences]. [ReadPreferences] makes pairs of the best and the worst of them.
func WriteAnswers(path string, all []Answers) error {
	return writeRows(path, each(Values(all), func(a Answers) ([]cell, error) {
		return []cell{{"prompt", a.Prompt}, {KnownAnswerColumns[0][0], a.Texts}, {KnownAnswerColumns[0][1], a.Scores}}, nil
	}))
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

// cell is a value of a row under the name of its column: a Text, a number, a truth value, a list of texts or of
// numbers, or JSON.
type cell struct {
	column string
	value  any
}

// writeRows writes rows in the form that the file's name asks for.
func writeRows(path string, rows iter.Seq2[[]cell, error]) error {
	return Table{
		Values: each(rows, func(row []cell) (any, error) {
			var object Object
			for _, c := range row {
				if t, is := c.value.(Text); is {
					c.value = t.value()
				}
				object = append(object, Entry{c.column, c.value})
			}
			return object, nil
		}),
		Parquet: func(w io.Writer) error { return writeTable(w, rows) },
	}.Write(path)
}

// toolsIn is the column of the tools of a conversation, which its first message has; nil if it has no tools.
func toolsIn(texts ...Text) []cell {
	for _, t := range texts {
		if len(t.Messages) > 0 {
			if t.Messages[0].Tools == "" {
				return nil
			}
			return []cell{{"tools", json.RawMessage(t.Messages[0].Tools)}}
		}
	}
	return nil
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
	whole, err := Decode([]byte(m.Whole))
	object, is := whole.(Object)
	if err != nil || !is {
		return messageJSON{m, m.train()}
	}
	if m.Untrained {
		object = append(object, Entry{Key: "train", Value: false})
	}
	return object
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

// writeTable finds the types of the columns first, and writes the rows then.
func writeTable(w io.Writer, rows iter.Seq2[[]cell, error]) error {
	columns, n := map[string]*column{}, 0
	for row, err := range rows {
		if err != nil {
			return err
		}
		n++
		for _, c := range row {
			if columns[c.column] == nil {
				columns[c.column] = &column{}
			}
			columns[c.column].add(c.value)
		}
	}
	schema := parquet.Group{}
	for _, name := range slices.Sorted(maps.Keys(columns)) {
		node, err := columns[name].node()
		if err == nil && columns[name].rows < n && !node.Optional() {
			err = fmt.Errorf("some rows have a column %s and some are bare text, which one table cannot hold: write .jsonl",
				name)
		}
		if err != nil {
			return err
		}
		schema[name] = node
	}
	return WriteParquet(w, each(rows, tableRow), parquet.NewSchema("row", schema))
}

// column is what is known of a column of a table.
type column struct {
	rows         int
	plain, chats int
	untrained    bool // a message has "train": false
	tools        bool // a conversation has tools, or calls them
	other        any  // a value that is no text
}

func (c *column) add(value any) {
	c.rows++
	t, is := value.(Text)
	_, tools := value.(json.RawMessage)
	switch {
	case tools:
		c.tools = true
	case !is:
		c.other = value
	case t.IsChat():
		c.chats++
		c.untrained = c.untrained || len(t.Trained()) < len(t.Messages)
		c.tools = c.tools || slices.ContainsFunc(t.Messages, func(m Message) bool { return m.Whole+m.Tools != "" })
	default:
		c.plain++
	}
}

// node is the parquet type of the column. Texts are strings or lists of {role, content}, all alike.
func (c *column) node() (parquet.Node, error) {
	switch c.other.(type) {
	case bool:
		return parquet.Leaf(parquet.BooleanType), nil
	case float64:
		return parquet.Optional(parquet.Leaf(parquet.DoubleType)), nil
	case []string:
		return parquet.List(parquet.String()), nil
	case []float64:
		return parquet.List(parquet.Leaf(parquet.DoubleType)), nil
	}
	switch {
	case c.tools:
		return nil, errors.New("some conversations have tools or messages with more than role and content, which no " +
			"parquet column here can hold: write .jsonl")
	case c.chats == 0:
		return parquet.String(), nil
	case c.plain == 0:
		message := parquet.Group{"role": parquet.String(), "content": parquet.String()}
		if c.untrained {
			message["train"] = parquet.Optional(parquet.Leaf(parquet.BooleanType))
		}
		return parquet.List(message), nil
	}
	return nil, errors.New("some texts are strings and some conversations, which one parquet column cannot hold: " +
		"write .jsonl")
}

// tableRow is a row in the form of the parquet writer.
func tableRow(row []cell) (any, error) {
	out := map[string]any{}
	for _, c := range row {
		switch v := c.value.(type) {
		case Text:
			out[c.column] = v.cell()
		case float64:
			out[c.column] = &v // a plain 0 becomes null
		default:
			out[c.column] = v
		}
	}
	return out, nil
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
