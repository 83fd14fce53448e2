// Package records reads, checks and writes a data file of any kind: its first row says which.
//
// Glossary:
//   - record: what a row holds, of one of the kinds ([Record]);
//   - rule: one demand on rows, with its severity ([Rule]);
//   - group: all that was found by one rule, with its first places ([Group]);
//   - gate: one demand on contextual-integrity items as training data ([Gates]).
//
// [Read], [Convert] and [ReadPrompts] are for files that are in order. [Check] says what is wrong with a file, row by
// row, in bounded memory (check.go): rows go through the rules of their kind (texts.go, items.go with gates.go), and are
// compared with earlier ones (twins.go, near.go). With [Options].Out the rows that are right are written to another file.
package records

import (
	"fmt"
	"iter"
	"os"
	"strings"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/internal/config/fault"
)

// Kind is a sort of record, by the name that a command line has for it.
type Kind string

// The kinds of records that files hold.
const (
	KindCI            Kind = "items"          // read by ci.Read
	KindPreference    Kind = "pairs"          // read by data.ReadPreferences
	KindDemonstration Kind = "demonstrations" // read by data.ReadDemonstrations
	KindLabelled      Kind = "labelled"       // read by data.ReadLabelled
)

// Kinds are all kinds.
var Kinds = []Kind{KindDemonstration, KindCI, KindLabelled, KindPreference}

// String names several records of a kind.
func (k Kind) String() string {
	return map[Kind]string{KindCI: "contextual-integrity items", KindPreference: "preference pairs",
		KindDemonstration: "demonstrations", KindLabelled: "answers with labels"}[k]
}

// Record is what a row holds: one of these, by the kind of its file.
type Record struct {
	Item    *ci.Item
	Pair    *data.Preference
	Demo    *data.Demonstration
	Answers []data.Labelled // two where the row is a pair, else one

	raw *ci.Raw // the item with the values of its file
}

// Source is the record's row.
func (r Record) Source() string {
	switch {
	case r.Item != nil:
		return r.Item.Source
	case r.Pair != nil:
		return r.Pair.Source
	case r.Demo != nil:
		return r.Demo.Source
	}
	return r.Answers[0].Source
}

// parts are what is written of a row.
func (r Record) parts() (all []any) {
	switch {
	case r.Item != nil:
		return []any{r.Item}
	case r.Pair != nil:
		return []any{*r.Pair}
	case r.Demo != nil:
		return []any{*r.Demo}
	}
	for _, a := range r.Answers {
		all = append(all, a)
	}
	return all
}

// stream reads a file of a kind.
func (k Kind) stream(path string, o data.PreferenceOptions) *data.Stream[Record] {
	switch k {
	case KindCI:
		return data.Map(ci.Stream(nil, path, ci.AllItems), func(c ci.Raw) Record { return Record{Item: &c.Item, raw: &c} })
	case KindPreference:
		return data.Map(data.StreamPreferences(nil, path, o), func(p data.Preference) Record { return Record{Pair: &p} })
	case KindLabelled:
		return data.Map(data.StreamLabelled(nil, path, o.Columns...),
			func(all []data.Labelled) Record { return Record{Answers: all} })
	}
	return data.Map(data.StreamDemonstrations(nil, path, o.Columns...),
		func(d data.Demonstration) Record { return Record{Demo: &d} })
}

// write writes records in the form that the file's name asks for.
func write(path string, all iter.Seq2[Record, error]) error {
	return data.Write(path, func(yield func(any, error) bool) {
		for record, err := range all {
			if err != nil {
				yield(nil, err)
				return
			}
			for _, part := range record.parts() {
				if !yield(part, nil) {
					return
				}
			}
		}
	})
}

// KindOf finds the kind of a file's records from its first row. Score columns for a file without preference pairs are
// an error.
func KindOf(path string, o data.PreferenceOptions) (Kind, error) {
	if faults := data.CheckColumns(o.Columns); len(faults) > 0 {
		return "", faults[0]
	}
	row, err := data.FirstRow(path, o.Columns...)
	if err != nil {
		return "", err
	}
	kind, err := kindOfRow(row)
	if err != nil {
		return "", fmt.Errorf("%s: %w", row.Source, err)
	}
	return kind, kind.checkScores(path, o)
}

func kindOfRow(given data.Row) (kind Kind, err error) {
	row := given
	if row.Has("seed") || row.Has("dataset_item") { // an item's columns have other meanings
		return KindCI, nil
	}
	if row, err = data.Canonical(row); err != nil {
		return "", err
	}
	switch {
	case row.Has("chosen") || row.Has("rejected") || data.HasAnswers(row.Fields):
		return KindPreference, nil
	case (row.Has("completion") || row.Has("messages")) && data.HasLabel(row.Fields):
		return KindLabelled, nil
	case row.Has("messages") || row.Has("text") || row.Has("completion"):
		return KindDemonstration, nil
	}
	return "", fmt.Errorf("found columns %s: want seed and dataset_item (contextual-integrity items), chosen and "+
		"rejected (preference pairs), prompt, completion and label (answers with labels), or messages, text, or prompt "+
		"and completion (demonstrations)", data.List(given.Columns()))
}

// checkScores refuses an empty column of scores, and columns of scores for a file without preference pairs.
func (k Kind) checkScores(path string, o data.PreferenceOptions) error {
	if k == KindPreference || len(o.ScoreColumns) == 0 {
		return fault.Err("data", o.Check())
	}
	return fmt.Errorf("%s: score columns %s: the file holds %s, and only preference pairs have scores", path,
		strings.Join(o.ScoreColumns, ", "), k)
}

// Read reads a file of any kind; of answers with labels each record has one.
func Read(path string, o data.PreferenceOptions) (kind Kind, all []Record, report *data.Report, err error) {
	if kind, err = KindOf(path, o); err != nil {
		return "", nil, nil, err
	}
	report, err = kind.stream(path, o).Each(func(r Record) error {
		for i := range r.Answers {
			all = append(all, Record{Answers: r.Answers[i : i+1]})
		}
		if r.Answers == nil {
			all = append(all, r)
		}
		return nil
	})
	return kind, all, report, err
}

// Convert rewrites a file in the form that the name out asks for, and counts the records written. It reads the file
// twice, so that a fault of it is found before anything is written, and never keeps it in memory.
func Convert(in, out string, o data.PreferenceOptions) (kind Kind, written int, report *data.Report, err error) {
	if err := checkOutput(in, out); err != nil {
		return "", 0, nil, err
	}
	if kind, err = KindOf(in, o); err != nil {
		return "", 0, nil, err
	}
	s := kind.stream(in, o)
	if report, err = s.Each(func(r Record) error { written += len(r.parts()); return nil }); err != nil {
		return "", 0, nil, err
	}
	return kind, written, report, write(out, s.All())
}

// checkOutput says whether records of a file can be written to another one, nil when they can.
func checkOutput(in, out string) error {
	x, err1 := os.Stat(in)
	y, err2 := os.Stat(out)
	if err1 == nil && err2 == nil && os.SameFile(x, y) {
		return fmt.Errorf("%s and %s are one file: want another name for what is written", in, out)
	}
	return data.CheckWritable(out)
}

// Prompt is a prompt of a file. A contextual-integrity item becomes one by [ci.Prompt]; its text is empty here.
type Prompt struct {
	data.PromptRow
	Item *ci.Item // nil: the file has other records
}

// ReadPrompts reads the prompts of a file: contextual-integrity items, the prompts of preference pairs, with their
// other columns, or a column prompt or messages, see [data.ReadPrompts].
func ReadPrompts(path string, columns ...string) (prompts []Prompt, report *data.Report, err error) {
	kind, err := KindOf(path, data.PreferenceOptions{Columns: columns})
	if err == nil && (kind == KindCI || kind == KindPreference) {
		_, all, report, err := Read(path, data.PreferenceOptions{Columns: columns})
		rows := map[string]map[string]any{}
		if err == nil && kind == KindPreference {
			rows, report.Unread = data.ColumnsByPlace(path, columns...), nil
		}
		for _, r := range all {
			p := Prompt{Item: r.Item}
			if p.Source = r.Source(); r.Pair != nil {
				p.Prompt, p.Row = r.Pair.Prompt, rows[p.Source]
			}
			prompts = append(prompts, p)
		}
		return prompts, report, err
	}
	rows, report, err := data.ReadPrompts(path, columns...) // for a file of another kind, its error says what it wants
	for _, r := range rows {
		prompts = append(prompts, Prompt{PromptRow: r})
	}
	return prompts, report, err
}
