package records

import (
	"path/filepath"
	"testing"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// TestReadPrompts: of items, of pairs with and without a column of prompts, and of prompts alone.
func TestReadPrompts(t *testing.T) {
	dir := t.TempDir()
	items := filepath.Join(dir, "items.jsonl")
	expect.OK(t, data.WriteAll(items, ci.Synthesize(2, 1)))
	got, report, err := ReadPrompts(items)
	if err != nil || len(got) != 2 || report.Kept != 2 || got[1].Item == nil || got[1].Source != items+":2" {
		t.Errorf("%+v, %v, %v", got, report, err)
	}
	for text, want := range map[string]data.Text{
		`{"prompt":"Q","chosen":"a","rejected":"b"}`:   plain("Q"),
		`{"chosen":"Q a","rejected":"Q b"}`:            plain("Q"),
		`{"prompt":"Q"}`:                               plain("Q"),
		`{"prompt":"Q","completion":"a"}`:              plain("Q"),
		`{"messages":[{"role":"user","content":"Q"}]}`: {Messages: []data.Message{{Role: "user", Content: "Q"}}},
	} {
		got, _, err := ReadPrompts(lineFile(t, dir, text))
		if err != nil || len(got) != 1 || !got[0].Prompt.Equal(want) || got[0].Item != nil {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	got, report, err = ReadPrompts(lineFile(t, dir, `{"chosen":"Q a","rejected":"Q b","right":"a"}`), "answer=right")
	if err != nil || got[0].Row["answer"] != "a" || got[0].Row["rejected"] != "Q b" || report.Unread != nil {
		t.Errorf("other columns of a pair: %+v, %v, %v", got, report, err)
	}
	const chosen = `[{"role":"assistant","content":"","tool_calls":[{"name":"f"}]}]`
	got, _, err = ReadPrompts(lineFile(t, dir, `{"prompt":[{"role":"user","content":"Q"}],"chosen":`+chosen+
		`,"rejected":[{"role":"assistant","content":"b"}]}`))
	expect.OK(t, err)
	row, err := data.Marshal(got[0].Row["chosen"])
	if want := `[{"content":"","role":"assistant","tool_calls":[{"name":"f"}]}]`; string(row) != want || err != nil {
		t.Errorf("%s, %v: a reward gets other keys than the file has", row, err)
	}
	_, _, err = ReadPrompts(lineFile(t, dir, `{"a":1}`))
	expect.Error(t, err, "found columns a: want prompt")
}

func lineFile(t *testing.T, dir, text string) string {
	t.Helper()
	path := filepath.Join(dir, "x.jsonl")
	expect.Write(t, path, text)
	return path
}
