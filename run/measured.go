package run

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Names of the completions of a test split, which a run measures ahead of training and behind it.
const (
	TestBeforeName = "test-before.jsonl"
	TestAfterName  = "test-after.jsonl"
)

// summaryJSONName is the summary in numbers.
const summaryJSONName = "summary.json"

// WriteLines stores records as a file of the folder, one JSON object a line, whole or not at all.
func (f *Folder) WriteLines(name string, records ...any) error {
	var b bytes.Buffer
	out := json.NewEncoder(&b)
	out.SetEscapeHTML(false) // tags are to be read
	for _, r := range records {
		if err := out.Encode(r); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return replaceFile(f.Path(name), b.Bytes())
}

// ReadLines gives read every line of a file of the folder; there is none where the file is not there.
func (f *Folder) ReadLines(name string, read func(line []byte) error) error {
	b, err := os.ReadFile(f.Path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s cannot be read: %w", f.Path(name), cause(err))
	}
	n := 0
	for line := range bytes.Lines(b) {
		n++
		if err := read(line); err != nil {
			return fmt.Errorf("%s:%d: %s", f.Path(name), n, oneLine(err))
		}
	}
	return nil
}

// WriteSummaryJSON stores the run's summary in numbers.
func (f *Folder) WriteSummaryJSON(summary any) error {
	b, err := json.MarshalIndent(summary, "", "  ")
	if err != nil {
		return fmt.Errorf("%s: %w", summaryJSONName, err)
	}
	return replaceFile(f.Path(summaryJSONName), append(b, '\n'))
}
