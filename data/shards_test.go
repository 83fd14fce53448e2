package data

import (
	"os"
	"path/filepath"
	"testing"
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
		if err := os.WriteFile(at(name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
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
