package data

import (
	"fmt"
	"io/fs"
)

// Kind is a sort of record.
type Kind int

// The kinds of records that files hold.
const (
	KindCI            Kind = iota + 1 // read by ReadCI
	KindPreference                    // read by ReadPreferences
	KindDemonstration                 // read by ReadDemonstrations
)

// String names several records of a kind.
func (k Kind) String() string {
	return map[Kind]string{KindCI: "contextual-integrity items", KindPreference: "preference pairs", KindDemonstration: "demonstrations"}[k]
}

// KindOf tells from its first row what a file holds.
func KindOf(path string) (Kind, error) { return kindOfFile(nil, path) }

func kindOfFile(fsys fs.FS, path string) (Kind, error) {
	for row, err := range readRows(fsys, path) {
		if err != nil {
			return 0, err
		}
		switch f := row.fields; {
		case has(f, "seed") || has(f, "dataset_item"):
			return KindCI, nil
		case has(f, "chosen") || has(f, "rejected"):
			return KindPreference, nil
		case has(f, "messages") || has(f, "text") || has(f, "completion"):
			return KindDemonstration, nil
		}
		return 0, fmt.Errorf("%s: found columns %s: want seed and dataset_item (contextual-integrity items), chosen and rejected (preference pairs), or messages, text, or prompt and completion (demonstrations)",
			row.source, list(columnsOf(row.fields)))
	}
	return 0, fmt.Errorf("%s: no rows: the file is empty", path)
}

// Records are the records of a file, of one kind.
type Records struct {
	Kind           Kind
	CI             []CIItem
	Preferences    []Preference
	Demonstrations []Demonstration
}

// Len is how many there are.
func (r *Records) Len() int { return len(r.CI) + len(r.Preferences) + len(r.Demonstrations) }

// Read reads a file of any kind. Options for preference pairs that a file of another kind cannot use are an error.
func Read(path string, o PreferenceOptions) (*Records, *Report, error) {
	kind, err := KindOf(path)
	if err != nil {
		return nil, nil, err
	}
	if kind != KindPreference && len(o.ScoreColumns) > 0 {
		return nil, nil, fmt.Errorf("%s: score columns %s: the file holds %s, and only preference pairs have scores", path, list(o.ScoreColumns), kind)
	}
	r := &Records{Kind: kind}
	var report *Report
	switch kind {
	case KindCI:
		r.CI, report, err = ReadCI(path)
	case KindPreference:
		r.Preferences, report, err = ReadPreferences(path, o)
	default:
		r.Demonstrations, report, err = ReadDemonstrations(path)
	}
	return r, report, err
}

// Write writes the records in the form that the file's name asks for.
func (r *Records) Write(path string) error {
	switch r.Kind {
	case KindCI:
		return WriteCI(path, r.CI)
	case KindPreference:
		return WritePreferences(path, r.Preferences)
	}
	return WriteDemonstrations(path, r.Demonstrations)
}
