package data

import (
	"bufio"
	"io"
	"strings"
	"testing"
	"testing/fstest"
	"testing/iotest"
)

func TestWithoutNaN(t *testing.T) {
	for text, want := range map[string]string{
		`{"a": NaN, "b": [NaN,NaN]}`:   `{"a": null, "b": [null,null]}`,
		`{"NaN": "NaN \" NaN", "c":1}`: `{"NaN": "NaN \" NaN", "c":1}`,
		`{"a": "\\", "b": NaN}`:        `{"a": "\\", "b": null}`,
		`{"a": Na}`:                    `{"a": Na}`, "N": "N", "": "",
	} {
		for _, in := range []io.Reader{strings.NewReader(text), iotest.OneByteReader(strings.NewReader(text))} {
			got, err := io.ReadAll(iotest.OneByteReader(&withoutNaN{in: bufio.NewReader(in), as: "null"}))
			if err != nil || string(got) != want {
				t.Errorf("%s: %s, %v", text, got, err)
			}
		}
	}
}

// TestReadPython: NaN is null there, and an error for JSONRows.
func TestReadPython(t *testing.T) {
	files := fstest.MapFS{"a.json": {Data: []byte("[{\"a\": NaN},\n{\"a\": 1}]")},
		"b.jsonl": {Data: []byte(`{"a": NaN}`)}}
	for name, want := range map[string]string{"a.json": `{"a": null} {"a": 1}`, "b.jsonl": `{"a": null}`} {
		var texts []string
		for row, err := range PythonRows(files, name) {
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, string(row.Text))
		}
		if got := strings.Join(texts, " "); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
	for _, err := range JSONRows(files, "a.json") {
		if err == nil || !strings.Contains(err.Error(), "a.json: row 1: bad JSON") {
			t.Error(err)
		}
		break
	}
}
