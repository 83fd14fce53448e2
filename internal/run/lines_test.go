package run

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
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
	expect.OK(t, f.WriteLines(TestBeforeName, record{"<think>\na"}, record{"b"}))
	if err := f.ReadLines(TestBeforeName, read); err != nil || strings.Join(got, "|") != "<think>\na|b" {
		t.Errorf("%q, %v", got, err)
	}
	if b, err := os.ReadFile(f.Path(TestBeforeName)); err != nil || !strings.HasPrefix(string(b), `{"Text":"<think>`) {
		t.Errorf("%s, %v", b, err)
	}
	err := f.ReadLines(TestBeforeName, func([]byte) error { return errors.New("bad\nthing") })
	wantError(t, err, TestBeforeName+":1: bad thing")
	expect.OK(t, f.WriteSummaryJSON(map[string]int{"steps": 3}))
	if b, err := os.ReadFile(f.Path(summaryJSONName)); err != nil || string(b) != "{\n  \"steps\": 3\n}\n" {
		t.Errorf("%s, %v", b, err)
	}
}

// TestTemporaryMeasurements: what a crash leaves of these files is removed when the folder is opened.
func TestTemporaryMeasurements(t *testing.T) {
	for _, name := range []string{TestBeforeName, TestAfterName, summaryJSONName, manifestName} {
		if !isTemporary("."+name+"123", ownNames) {
			t.Errorf("%s", name)
		}
	}
}

type sample struct {
	Step int    `json:"step"`
	Text string `json:"text"`
}

func TestSamplesAreCutToAStep(t *testing.T) {
	f := newFolder(t)
	if err := f.CutSamples(-1); err != nil {
		t.Fatalf("no file yet: %v", err)
	}
	for step := range 3 {
		expect.OK(t, f.LogSamples(sample{10 * step, "<a>"}, sample{10 * step, "b"}))
	}
	file := expect.Must(os.OpenFile(f.SamplesPath(), os.O_WRONLY|os.O_APPEND, 0))(t)
	file.WriteString(`{"step":20,"te`) // as a crash leaves it
	file.Close()
	expect.OK(t, f.CutSamples(10))
	expect.OK(t, f.LogSamples(sample{30, "c"}))
	got := expect.Read(t, f.SamplesPath())
	want := `{"step":0,"text":"<a>"}
{"step":0,"text":"b"}
{"step":10,"text":"<a>"}
{"step":10,"text":"b"}
{"step":30,"text":"c"}
`
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestSamplesOfSomebodyElse(t *testing.T) {
	f := newFolder(t)
	expect.Write(t, f.SamplesPath(), "{\"step\":1}\n[]\n")
	wantError(t, f.CutSamples(0), "samples.jsonl:2", "step")
}
