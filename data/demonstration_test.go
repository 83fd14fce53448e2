package data

import (
	"reflect"
	"strings"
	"testing"
)

func TestDemonstrationColumns(t *testing.T) {
	for _, c := range []struct {
		row  string
		want Demonstration
	}{
		{`{"text":"a b"}`, Demonstration{Completion: plain("a b")}},
		{`{"prompt":"Q","completion":" A"}`, Demonstration{Prompt: plain("Q"), Completion: plain(" A")}},
		{`{"prompt":[{"role":"user","content":"Q"}],"completion":[{"role":"assistant","content":"A"}],"text":"not this"}`,
			Demonstration{Prompt: talk("user", "Q"), Completion: talk("assistant", "A")}},
		{`{"prompt":"not this","messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"A"},{"role":"user","content":"R"},{"role":"assistant","content":"B"}]}`,
			Demonstration{Prompt: talk("user", "Q", "A", "R"), Completion: talk("assistant", "B")}},
		{`{"messages":[{"role":"assistant","content":"A"}]}`, Demonstration{Prompt: talk("user"), Completion: talk("assistant", "A")}},
	} {
		c.want.Source = "d.jsonl:1"
		demos, _, err := readDemonstrations(files("d.jsonl", c.row), "d.jsonl")
		if err != nil {
			t.Errorf("%s: %v", c.row, err)
		} else if !reflect.DeepEqual(demos[0], c.want) {
			t.Errorf("%s:\n got %+v\nwant %+v", c.row, demos[0], c.want)
		}
	}
}

func TestDemonstrationDrops(t *testing.T) {
	rows := `{"text":"a"}
{"text":""}
{"messages":[]}
{"messages":[{"role":"assistant","content":"A"},{"role":"user","content":"Q"}]}
{"prompt":"Q","completion":" "}
`
	demos, report, err := readDemonstrations(files("d.jsonl", rows), "d.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	want := `d.jsonl: 5 rows read, 2 kept
  dropped 1: completion is empty (first: d.jsonl:2)
  dropped 1: no messages (first: d.jsonl:3)
  dropped 1: the last message is not the assistant's (first: d.jsonl:4)
  note: 1: completion is only white space (first: d.jsonl:5)`
	if report.String() != want || len(demos) != 2 {
		t.Errorf("%d demonstrations, report\n%s\nwant\n%s", len(demos), report, want)
	}
}

func TestDemonstrationErrors(t *testing.T) {
	for row, want := range map[string]string{
		"":               "d.jsonl: no rows: the file is empty",
		`{"prompt":"Q"}`: "d.jsonl:1: found columns prompt: want text, or messages, or prompt and completion",
		`{"text":[{"role":"user","content":"Q"}]}`:                         "text is a list: want a string, or the column named messages",
		`{"messages":"Q"}`:                                                 "messages is a string: want a list of {role, content}",
		`{"prompt":"Q","completion":[{"role":"assistant","content":"A"}]}`: "one of prompt and completion is a string",
		`{"text":""}`: "d.jsonl: all 1 rows dropped",
		`{"messages":[{"role":5,"content":"A"}]}`:                            "messages[0].role is a number: want a string",
		`{"prompt":"Q","completion":` + strings.Repeat("[", 20000) + `"A"]}`: "d.jsonl:1: bad JSON: invalid character '[' exceeded max depth",
	} {
		demos, report, err := readDemonstrations(files("d.jsonl", row), "d.jsonl")
		wantError(t, err, want)
		if demos != nil || report != nil {
			t.Errorf("%.40s: a result beside the error", row)
		}
	}
}
