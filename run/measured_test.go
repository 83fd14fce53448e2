package run

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
)

// TestLines: records survive, tags stay legible, a missing file has no line, and a bad line is named.
func TestLines(t *testing.T) {
	f := newFolder(t)
	type record struct{ Text string }
	var got []string
	read := func(line []byte) error {
		var r record
		err := json.Unmarshal(line, &r)
		got = append(got, r.Text)
		return err
	}
	if err := f.ReadLines(TestBeforeName, read); err != nil || got != nil {
		t.Errorf("of no file: %v, %v", got, err)
	}
	if err := f.WriteLines(TestBeforeName, record{"<think>\na"}, record{"b"}); err != nil {
		t.Fatal(err)
	}
	if err := f.ReadLines(TestBeforeName, read); err != nil || strings.Join(got, "|") != "<think>\na|b" {
		t.Errorf("%q, %v", got, err)
	}
	if b, err := os.ReadFile(f.Path(TestBeforeName)); err != nil || !strings.HasPrefix(string(b), `{"Text":"<think>`) {
		t.Errorf("%s, %v", b, err)
	}
	err := f.ReadLines(TestBeforeName, func([]byte) error { return errors.New("bad\nthing") })
	wantError(t, err, TestBeforeName+":1: bad thing")
	if err := f.WriteSummaryJSON(map[string]int{"steps": 3}); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(f.Path(summaryJSONName)); err != nil || string(b) != "{\n  \"steps\": 3\n}\n" {
		t.Errorf("%s, %v", b, err)
	}
}

// TestTemporaryMeasurements: what a crash leaves of these files is removed when the folder is opened.
func TestTemporaryMeasurements(t *testing.T) {
	for _, name := range []string{TestBeforeName, TestAfterName, summaryJSONName} {
		if !isTemporary("." + name + "123") {
			t.Errorf("%s", name)
		}
	}
}
