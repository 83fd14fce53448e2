package data

import (
	"cmp"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"path"
	"path/filepath"
	"strings"

	"github.com/posttrain/posttrain/internal/float"
)

// Answers are several completions of a prompt, with a score each. [ReadPreferences] makes pairs of the best and the worst
// of them.
type Answers struct {
	Prompt Text
	Texts  []string
	Scores []float64
}

// WriteAll writes records as [Write] does.
func WriteAll[T any](path string, all []T) error { return Write(path, Values(all)) }

// Write writes records as JSON. The extension of the file's name says how: .jsonl (JSON lines) or .json (an array), each
// also with .gz. A [Preference], [Demonstration], [Labelled] or [Answers] has the columns that its reader takes, anything
// else is written as encoding/json has it. The file appears whole or not at all: it gets a temporary name beside path
// first, then its own. The first error among the records ends the writing.
func Write[T any](name string, records iter.Seq2[T, error]) error {
	if err := CheckWritable(name); err != nil {
		return err
	}
	ext, zipped := FormOf(name)
	return WriteFile(name, func(w io.Writer) error {
		if !zipped {
			return writeRecords(w, ext == ".json", records)
		}
		z := gzip.NewWriter(w)
		return cmp.Or(writeRecords(z, ext == ".json", records), z.Close())
	})
}

// writeRecords writes a record a line, of an array or not.
func writeRecords[T any](w io.Writer, array bool, records iter.Seq2[T, error]) error {
	before, behind, end := "", "\n", ""
	if array {
		before, behind, end = "[\n", "", "[]\n"
	}
	for record, err := range records {
		var text []byte
		if err == nil {
			text, err = recordText(record)
		}
		if err == nil {
			_, err = fmt.Fprintf(w, "%s%s%s", before, text, behind)
		}
		if err != nil {
			return err
		}
		if array {
			before, end = ",\n", "\n]\n"
		}
	}
	_, err := io.WriteString(w, end)
	return err
}

func recordText(record any) ([]byte, error) {
	if r, is := record.(interface{ columns() (Object, error) }); is {
		columns, err := r.columns()
		if err != nil {
			return nil, err
		}
		return columns.MarshalJSON()
	}
	return Marshal(record)
}

// CheckWritable says whether records can be written under a name, nil when they can.
func CheckWritable(name string) error {
	if ext, _ := FormOf(name); ext != ".jsonl" && ext != ".json" {
		return fmt.Errorf("%s: extension %q: want .jsonl or .json, each also with .gz", name,
			path.Ext(strings.ToLower(name)))
	}
	return nil
}

// FormOf is the extension of a file without .gz, in small letters, and whether it had .gz.
func FormOf(name string) (ext string, zipped bool) {
	base, zipped := strings.CutSuffix(strings.ToLower(filepath.ToSlash(name)), ".gz")
	return path.Ext(base), zipped
}

func (p Preference) columns() (Object, error) {
	row := Object{{"prompt", p.Prompt}, {"chosen", p.Chosen}, {"rejected", p.Rejected}}
	if p.Scored {
		if !float.IsFinite(p.ChosenScore) || !float.IsFinite(p.RejectedScore) {
			return nil, fmt.Errorf("pair from %s: scores %v and %v: want finite numbers", p.Source, p.ChosenScore,
				p.RejectedScore)
		}
		row = append(row, Entry{"chosen_score", p.ChosenScore}, Entry{"rejected_score", p.RejectedScore})
	}
	return row.withTools(p.Prompt, p.Chosen), nil
}

// A demonstration without a prompt has the column text.
func (d Demonstration) columns() (Object, error) {
	if d.Prompt.Empty() && !d.Completion.IsChat() {
		return Object{{"text", d.Completion}}, nil
	}
	return Object{{"prompt", d.Prompt}, {"completion", d.Completion}}.withTools(d.Prompt, d.Completion), nil
}

func (a Labelled) columns() (Object, error) {
	row := Object{{"prompt", a.Prompt}, {"completion", a.Completion}, {"label", a.Desirable}}
	return row.withTools(a.Prompt, a.Completion), nil
}

func (a Answers) columns() (Object, error) {
	row := Object{{"prompt", a.Prompt}, {KnownAnswerColumns[0][0], a.Texts}, {KnownAnswerColumns[0][1], a.Scores}}
	return row.withTools(a.Prompt), nil
}

// withTools adds the column of the tools of a conversation, which its first message has.
func (o Object) withTools(texts ...Text) Object {
	for _, t := range texts {
		if len(t.Messages) > 0 {
			if tools := t.Messages[0].Tools; tools != "" {
				o = append(o, Entry{"tools", json.RawMessage(tools)})
			}
			break
		}
	}
	return o
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

// MarshalJSON writes a text as a column holds it: a string or a list of {role, content}.
func (t Text) MarshalJSON() ([]byte, error) {
	if !t.IsChat() {
		return Marshal(t.Plain)
	}
	messages := make([]any, len(t.Messages))
	for i, m := range t.Messages {
		messages[i] = m.value()
	}
	return Marshal(messages)
}

// value is the message as JSON has it.
func (m Message) value() any {
	whole, err := Decode([]byte(m.Whole))
	object, is := whole.(Object)
	if err != nil || !is {
		object = Object{{"role", m.Role}, {"content", m.Content}}
	}
	if m.Untrained {
		object = append(object, Entry{"train", false})
	}
	return object
}

// UnmarshalJSON reads what MarshalJSON writes.
func (t *Text) UnmarshalJSON(b []byte) error {
	*t = Text{}
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, &t.Plain)
	}
	return json.Unmarshal(b, &t.Messages)
}
