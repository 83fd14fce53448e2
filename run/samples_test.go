package run

import (
	"os"
	"testing"
)

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
		if err := f.LogSamples(sample{10 * step, "<a>"}, sample{10 * step, "b"}); err != nil {
			t.Fatal(err)
		}
	}
	file, err := os.OpenFile(f.SamplesPath(), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	file.WriteString(`{"step":20,"te`) // as a crash leaves it
	file.Close()
	if err := f.CutSamples(10); err != nil {
		t.Fatal(err)
	}
	if err := f.LogSamples(sample{30, "c"}); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(f.SamplesPath())
	if err != nil {
		t.Fatal(err)
	}
	want := `{"step":0,"text":"<a>"}
{"step":0,"text":"b"}
{"step":10,"text":"<a>"}
{"step":10,"text":"b"}
{"step":30,"text":"c"}
`
	if string(got) != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestSamplesOfSomebodyElse(t *testing.T) {
	f := newFolder(t)
	writeFile(t, f.SamplesPath(), "{\"step\":1}\n[]\n")
	wantError(t, f.CutSamples(0), "samples.jsonl:2", "step")
}
