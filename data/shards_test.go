package data

import (
	"path/filepath"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// TestShards: a pattern means all files that it matches, in the order of their names; a bad row ends it, with its file.
func TestShards(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	type row struct {
		Prompt     string `parquet:"prompt"`
		Completion string `parquet:"completion"`
	}
	for name, text := range map[string]string{
		"train-00001-of-00002.parquet": parquetOf(t, row{"c", "3"}),
		"train-00000-of-00002.parquet": parquetOf(t, row{"a", "1"}, row{"b", "2"}),
		"x1.jsonl":                     `{"text":"a"}`, "x2.jsonl": "{", "x3.jsonl": `{"text":"c"}`, "odd[1].jsonl": `{"text":"d"}`,
	} {
		expect.Write(t, at(name), text)
	}
	demos, report, err := ReadDemonstrations(at("train-*.parquet"))
	if err != nil || len(demos) != 3 || demos[2].Prompt.Plain != "c" || report.Kept != 3 ||
		demos[2].Source != at("train-00001-of-00002.parquet")+": row 1" {
		t.Errorf("%+v, %v", demos, err)
	}
	if demos, _, err = ReadDemonstrations(at("odd[1].jsonl")); err != nil || len(demos) != 1 {
		t.Error(demos, err)
	}
	_, _, err = ReadDemonstrations(at("x?.jsonl"))
	wantError(t, err, at("x2.jsonl")+":1")
	_, _, err = ReadDemonstrations(at("none*.jsonl"))
	wantError(t, err, at("none*.jsonl")+": no such file")
}

// TestPyarrow: files that pyarrow 26 has written: half floats, which pandas reads as these numbers, decimals, lists of
// maps, and a shard with a row group of no rows.
func TestPyarrow(t *testing.T) {
	at := func(name string) string { return filepath.Join("testdata", "pyarrow", name+".parquet") }
	for name, want := range map[string][4]float64{
		"half":      {0.89990234375, 0.0999755859375, 0.75, 0.25},
		"half-list": {0.89990234375, 0.0999755859375, 0.75, 0.25},
		"decimal":   {0.9, 0.1, 0.75, 0.25},
	} {
		pairs, report, err := ReadPreferences(at(name), PreferenceOptions{})
		if err != nil || report.Scored != 2 {
			t.Fatalf("%s: %v, %v", name, report, err)
		}
		got := [4]float64{pairs[0].ChosenScore, pairs[0].RejectedScore, pairs[1].ChosenScore, pairs[1].RejectedScore}
		if got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	demos, _, err := ReadDemonstrations(at("maps"))
	if err != nil || len(demos) != 2 || !demos[1].Prompt.Equal(conversation("user", "Name a lake.")) ||
		!demos[1].Completion.Equal(conversation("assistant", "Geneva.")) {
		t.Errorf("maps: %+v, %v", demos, err)
	}
	demos, report, err := ReadDemonstrations(at("empty-*"))
	if err != nil || report.Read != 2 || demos[1].Completion.Plain != "Danube." {
		t.Errorf("empty shard: %+v, %v", demos, err)
	}
}
