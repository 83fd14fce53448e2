// Package records reads and writes a data file of any kind: its first row says which.
package records

import (
	"fmt"
	"io/fs"
	"iter"
	"os"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/data/internal/rows"
	"github.com/posttrain/posttrain/data/privacylens"
)

// Kind is a sort of record.
type Kind int

// The kinds of records that files hold.
const (
	KindCI            Kind = iota + 1 // read by ci.Read
	KindPreference                    // read by data.ReadPreferences
	KindDemonstration                 // read by data.ReadDemonstrations
	KindLabelled                      // read by data.ReadLabelled
	KindCase                          // read by privacylens.Read
)

// Kinds are the names of the kinds, by which a command line chooses.
var Kinds = map[string]Kind{"items": KindCI, "pairs": KindPreference, "demonstrations": KindDemonstration,
	"labelled": KindLabelled, "cases": KindCase}

// String names several records of a kind.
func (k Kind) String() string {
	return map[Kind]string{
		KindCI: "contextual-integrity items", KindPreference: "preference pairs", KindDemonstration: "demonstrations",
		KindLabelled: "answers with labels", KindCase: "PrivacyLens cases",
	}[k]
}

// kindOf finds the kind of a file's records from its first row.
func kindOf(fsys fs.FS, path string) (Kind, error) {
	for row, err := range rows.Read(fsys, path) {
		if err != nil {
			return 0, err
		}
		given := row
		if !row.Has("seed") && !row.Has("dataset_item") { // an item's columns have other meanings
			if row, err = data.Canonical(row); err != nil {
				return 0, fmt.Errorf("%s: %w", row.Source, err)
			}
		}
		switch {
		case row.Has("vignette") || row.Has("trajectory"):
			return KindCase, nil
		case row.Has("seed") || row.Has("dataset_item"):
			return KindCI, nil
		case row.Has("chosen") || row.Has("rejected") || data.HasAnswers(row.Fields):
			return KindPreference, nil
		case row.Has("completion") && data.HasLabel(row.Fields):
			return KindLabelled, nil
		case row.Has("messages") || row.Has("text") || row.Has("completion"):
			return KindDemonstration, nil
		}
		return 0, fmt.Errorf("%s: found columns %s: want seed and dataset_item (contextual-integrity items), chosen "+
			"and rejected (preference pairs), prompt, completion and label (answers with labels), messages, text, or "+
			"prompt and completion (demonstrations), or name, seed, vignette and trajectory (PrivacyLens cases)",
			row.Source, rows.List(given.Columns()))
	}
	return 0, fmt.Errorf("%s: no rows: the file is empty", path)
}

// File holds the records of a file, all of one kind.
type File struct {
	Kind           Kind
	CI             []ci.Item
	Preferences    []data.Preference
	Demonstrations []data.Demonstration
	Labelled       []data.Labelled
	Cases          []privacylens.Case
}

// Len is the number of records.
func (r *File) Len() int {
	return len(r.CI) + len(r.Preferences) + len(r.Demonstrations) + len(r.Labelled) + len(r.Cases)
}

// KindOf finds the kind of a file's records from its first row. Score columns for a file without preference pairs are
// an error.
func KindOf(path string, o data.PreferenceOptions) (Kind, error) {
	kind, err := kindOf(nil, path)
	if err == nil {
		err = kind.CheckScores(path, o)
	}
	return kind, err
}

// CheckScores refuses score columns for a file without preference pairs.
func (k Kind) CheckScores(path string, o data.PreferenceOptions) error {
	if k == KindPreference || len(o.ScoreColumns) == 0 {
		return nil
	}
	return fmt.Errorf("%s: score columns %s: the file holds %s, and only preference pairs have scores", path,
		rows.List(o.ScoreColumns), k)
}

// Read reads a file of any kind. Score columns for a file without preference pairs are an error.
func Read(path string, o data.PreferenceOptions) (*File, *data.Report, error) {
	kind, err := KindOf(path, o)
	if err != nil {
		return nil, nil, err
	}
	r := &File{Kind: kind}
	var report *data.Report
	switch kind {
	case KindCI:
		r.CI, report, err = ci.Read(path)
	case KindPreference:
		r.Preferences, report, err = data.ReadPreferences(path, o)
	case KindLabelled:
		r.Labelled, report, err = data.ReadLabelled(path)
	case KindCase:
		r.Cases, report, err = privacylens.Read(path)
	default:
		r.Demonstrations, report, err = data.ReadDemonstrations(path)
	}
	return r, report, err
}

// Write writes the records in the form that the file's name asks for.
func (r *File) Write(path string) error {
	switch r.Kind {
	case KindCI:
		return ci.Write(path, r.CI)
	case KindPreference:
		return data.WritePreferences(path, r.Preferences)
	case KindLabelled:
		return data.WriteLabelled(path, r.Labelled)
	case KindCase:
		return privacylens.Write(path, r.Cases)
	}
	return data.WriteDemonstrations(path, r.Demonstrations)
}

// Convert rewrites a file in the form that the name out asks for, and counts the records written. It reads the file
// twice, three times for .parquet, and never keeps it in memory.
func Convert(in, out string, o data.PreferenceOptions) (kind Kind, written int, report *data.Report, err error) {
	if err := CheckOutput(in, out); err != nil {
		return 0, 0, nil, err
	}
	if kind, err = KindOf(in, o); err != nil {
		return 0, 0, nil, err
	}
	switch kind {
	case KindCI:
		written, report, err = copyAll(ci.Stream(in), alone, out, ci.WriteSeq)
	case KindPreference:
		var pairs *data.Stream[data.Preference]
		if pairs, err = data.StreamPreferences(in, o); err == nil {
			written, report, err = copyAll(pairs, alone, out, data.WritePreferenceSeq)
		}
	case KindLabelled:
		written, report, err = copyAll(data.StreamLabelled(in), together, out, data.WriteLabelledSeq)
	case KindCase:
		written, report, err = copyAll(privacylens.Stream(in), alone, out, privacylens.WriteSeq)
	default:
		written, report, err = copyAll(data.StreamDemonstrations(in), alone, out, data.WriteDemonstrationSeq)
	}
	return kind, written, report, err
}

// CheckOutput says whether records of a file can be written to another one, nil when they can.
func CheckOutput(in, out string) error {
	if sameFile(in, out) {
		return fmt.Errorf("%s and %s are one file: want another name for what is written", in, out)
	}
	return data.CheckWritable(out)
}

// copyAll counts the records of a stream, so that a fault of the file is found before anything is written, and writes
// them. parts are the records of a row.
func copyAll[R, T any](s *data.Stream[R], parts func(R) []T, out string,
	write func(string, iter.Seq2[T, error]) error) (n int, report *data.Report, err error) {
	report, err = s.Each(func(row R) error { n += len(parts(row)); return nil })
	if err != nil {
		return 0, nil, err
	}
	return n, report, write(out, func(yield func(T, error) bool) {
		for row, err := range s.All() {
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, record := range parts(row) {
				if !yield(record, nil) {
					return
				}
			}
		}
	})
}

// alone is the record of a row that has one.
func alone[T any](record T) []T { return []T{record} }

// together are the records of a row that has several.
func together[T any](all []T) []T { return all }

func sameFile(a, b string) bool {
	x, err1 := os.Stat(a)
	y, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(x, y)
}
