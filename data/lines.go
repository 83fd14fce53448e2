package data

import (
	"encoding/json"
	"io"

	"github.com/posttrain/posttrain/data/internal/rows"
)

// WriteLines writes n values as JSON lines, whole or not at all.
func WriteLines(path string, n int, line func(i int) any) error {
	return rows.WriteFile(path, func(w io.Writer) error {
		for i := range n {
			if err := WriteLine(w, line(i)); err != nil {
				return err
			}
		}
		return nil
	})
}

// WriteLine writes a value as a line of JSON, in which <think> stays readable.
func WriteLine(w io.Writer, value any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(value)
}

// WriteJSON writes a value as indented JSON, whole or not at all.
func WriteJSON(path string, value any) error {
	return rows.WriteFile(path, func(w io.Writer) error {
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		return enc.Encode(value)
	})
}

// MarshalJSON writes a text as a column holds it: a string or a list of {role, content}.
func (t Text) MarshalJSON() ([]byte, error) { return rows.Marshal(t.value()) }
