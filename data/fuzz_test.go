package data

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// readAll gives a file to every reader; what comes out must keep the promises of the records.
func readAll(t *testing.T, name, content string) {
	fsys := files(name, content)
	pairs, report, err := ReadPreferencesFS(fsys, name, PreferenceOptions{})
	checkOutcome(t, len(pairs), report, err)
	for _, p := range pairs {
		for _, text := range []Text{p.Prompt, p.Chosen, p.Rejected} {
			if text.Empty() || !utf8.ValidString(text.Plain) {
				t.Fatalf("%+v", p)
			}
		}
		if p.Chosen.Equal(p.Rejected) || p.Chosen.IsChat() != p.Rejected.IsChat() ||
			p.Prompt.IsChat() != p.Chosen.IsChat() || p.Source == "" {
			t.Fatalf("%+v", p)
		}
	}
	demos, report, err := readDemonstrations(fsys, name)
	checkOutcome(t, len(demos), report, err)
	for _, d := range demos {
		if d.Completion.Empty() {
			t.Fatalf("%+v", d)
		}
	}
}

// checkOutcome wants rows or a one-line error that begins with the file's name.
func checkOutcome(t *testing.T, rows int, report *Report, err error) {
	t.Helper()
	if err == nil && (rows == 0 || report.Kept != rows) {
		t.Fatalf("%d rows, report %+v", rows, report)
	}
	if err != nil && (rows > 0 || !strings.HasPrefix(err.Error(), "f.")) {
		t.Fatalf("%d rows beside the error %q", rows, err)
	}
}

var jsonSeeds = []string{
	`{"prompt":"Q","chosen":"a","rejected":"b","chosen_score":1,"rejected_score":0}`,
	`{"chosen":[{"role":"user","content":"Q"},{"role":"assistant","content":"a"}],"rejected":[{"role":"user",` +
		`"content":"Q"},{"role":"assistant","content":"b"}]}`,
	`{"chosen":"\n\nHuman: a\n\nAssistant: é","rejected":"\n\nHuman: a\n\nAssistant: è"}`,
	`{"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"a"}],"text":"t"}`,
	`{"a":1e999,"b":"\ud800"}`,
}

func FuzzJSONL(f *testing.F) {
	for _, s := range jsonSeeds {
		f.Add(s + "\n" + s)
	}
	f.Fuzz(func(t *testing.T, content string) { readAll(t, "f.jsonl", content) })
}

func FuzzJSON(f *testing.F) {
	for _, s := range jsonSeeds {
		f.Add("[" + s + ",\n" + s + "]")
		f.Add(s + s)
	}
	f.Fuzz(func(t *testing.T, content string) { readAll(t, "f.json", content) })
}

func FuzzGzip(f *testing.F) {
	f.Add(gzipText(jsonSeeds[0]))
	f.Fuzz(func(t *testing.T, content string) { readAll(t, "f.jsonl.gz", content) })
}

func FuzzParquet(f *testing.F) {
	for _, name := range []string{"pairs.parquet", "texts.parquet"} {
		content, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(content))
	}
	f.Fuzz(func(t *testing.T, content string) { readAll(t, "f.parquet", content) })
}
