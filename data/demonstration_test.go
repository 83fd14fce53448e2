package data

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
)

func TestDemonstrationColumns(t *testing.T) {
	for _, c := range []struct {
		row  string
		want Demonstration
	}{
		{`{"text":"a b"}`, Demonstration{Completion: plainText("a b")}},
		{`{"prompt":"Q","completion":" A"}`, Demonstration{Prompt: plainText("Q"), Completion: plainText(" A")}},
		{`{"prompt":[{"role":"user","content":"Q"}],"completion":[{"role":"assistant","content":"A"}],` +
			`"text":"<q>Q<a>A"}`,
			Demonstration{Prompt: conversation("user", "Q"), Completion: conversation("assistant", "A")}},
		{`{"prompt":"Q","messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"A"},` +
			`{"role":"user","content":"R"},{"role":"assistant","content":"B"}]}`,
			turns(conversation("user", "Q"), "assistant A", "-user R", "assistant B")},
		{`{"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"A","train":false},` +
			`{"role":"user","content":"R"},{"role":"assistant","content":"B","train":true}]}`,
			Demonstration{Prompt: Text{Messages: []Message{{Role: "user", Content: "Q"},
				{Role: "assistant", Content: "A", Untrained: true}, {Role: "user", Content: "R"}}},
				Completion: conversation("assistant", "B")}},
		{`{"messages":[{"role":"assistant","content":"Hi"},{"role":"user","content":"Q"},` +
			`{"role":"assistant","content":"A"}]}`, turns(conversation("assistant", "Hi", "Q"), "assistant A")},
		{`{"messages":[{"role":"system","content":"S"},{"role":"assistant","content":"Hi"},` +
			`{"role":"user","content":"Q"},{"role":"assistant","content":"A"}]}`,
			Demonstration{Prompt: Text{Messages: []Message{{Role: "system", Content: "S"},
				{Role: "assistant", Content: "Hi"}, {Role: "user", Content: "Q"}}},
				Completion: conversation("assistant", "A")}},
		{`{"messages":[{"role":"system","content":"S"},{"role":"assistant","content":"A"}]}`,
			Demonstration{Prompt: Text{Messages: []Message{{Role: "system", Content: "S"}}},
				Completion: conversation("assistant", "A")}},
		{`{"prompt":[{"role":"user","content":"Q"}],"completion":[{"role":"assistant","content":"A","train":false},` +
			`{"role":"user","content":"R"},{"role":"assistant","content":"B"}]}`,
			turns(conversation("user", "Q"), "-assistant A", "user R", "assistant B")},
		{`{"messages":[{"role":"assistant","content":"A"}]}`,
			Demonstration{Prompt: conversation("user"), Completion: conversation("assistant", "A")}},
	} {
		c.want.Source = "d.jsonl:1"
		demos, _, err := StreamDemonstrations(mapFS("d.jsonl", c.row), "d.jsonl").Collect()
		if err != nil {
			t.Errorf("%s: %v", c.row, err)
		} else if !reflect.DeepEqual(demos[0], c.want) {
			t.Errorf("%s:\n got %+v\nwant %+v", c.row, demos[0], c.want)
		}
	}
}

// turns is a demonstration with a completion of messages, "role content" each, with a minus before untrained ones.
func turns(prompt Text, completion ...string) Demonstration {
	d := Demonstration{Prompt: prompt}
	for _, s := range completion {
		s, untrained := strings.CutPrefix(s, "-")
		role, content, _ := strings.Cut(s, " ")
		d.Completion.Messages = append(d.Completion.Messages, Message{Role: role, Content: content, Untrained: untrained})
	}
	return d
}

// TestTurnsSurvive: which messages are trained on is the same after writing and reading, in every form.
func TestTurnsSurvive(t *testing.T) {
	demos := []Demonstration{turns(conversation("user", "Q"), "assistant A", "-user R", "assistant B"),
		turns(conversation("user", "Q"), "assistant A")}
	for _, name := range []string{"d.jsonl", "d.json"} {
		path := filepath.Join(t.TempDir(), name)
		expect.OK(t, WriteAll(path, demos))
		got, _, err := ReadDemonstrations(path)
		for i := range got {
			got[i].Source = ""
		}
		if err != nil || !reflect.DeepEqual(got, demos) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestDemonstrationDrops(t *testing.T) {
	rows := `{"text":"a"}
{"text":""}
{"messages":[]}
{"messages":[{"role":"assistant","content":"A"},{"role":"user","content":"Q"}]}
{"prompt":"Q","completion":" "}
{"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"A","train":false}]}
`
	demos, report, err := StreamDemonstrations(mapFS("d.jsonl", rows), "d.jsonl").Collect()
	expect.OK(t, err)
	want := `d.jsonl: 6 rows read, 2 kept
  dropped 1: completion is empty (first: d.jsonl:2)
  dropped 1: no messages (first: d.jsonl:3)
  dropped 1: the last message is not the assistant's (first: d.jsonl:4)
  dropped 1: no message is trained on (first: d.jsonl:6)
  note: 1: completion is only white space (first: d.jsonl:5)`
	if report.String() != want || len(demos) != 2 {
		t.Errorf("%d demonstrations, report\n%s\nwant\n%s", len(demos), report, want)
	}
}

func TestDemonstrationErrors(t *testing.T) {
	for row, want := range map[string]string{
		"":               "d.jsonl: no rows: the file is empty",
		`{"prompt":"Q"}`: "d.jsonl:1: found columns prompt, which grpo and mappo --mode online read (prompts): want text, or messages, or prompt and completion",
		`{"text":[{"role":"user","content":"Q"}]}`: "text is a list: want a string, or the " +
			"column named messages",
		`{"messages":"Q"}`: "messages is a string: want a list of " +
			"{role, content}",
		`{"prompt":"Q","completion":[{"role":"assistant","content":"A"}]}`: "one of prompt and completion is a string",
		`{"text":""}`: "d.jsonl: all 1 rows dropped",
		`{"messages":[{"role":5,"content":"A"}]}`: "messages[0].role is a number: want a " +
			"string",
		`{"messages":[{"role":"assistant","content":"A","train":0.5}]}`: "d.jsonl:1: messages[0].train is 0.5: " +
			"want true or false, or 1 or 0",
		`{"prompt":"no","messages":[{"role":"assistant","content":"A"}]}`: `the column prompt has "no", which the ` +
			"record lacks: want it in the columns that are read (messages), or the column left out",
		`{"prompt":"Q","completion":` + strings.Repeat("[", 20000) +
			`"A"]}`: "d.jsonl:1: bad JSON: invalid character '[' exceeded max depth",
	} {
		demos, report, err := StreamDemonstrations(mapFS("d.jsonl", row), "d.jsonl").Collect()
		wantError(t, err, want)
		if demos != nil || report != nil {
			t.Errorf("%.40s: a result beside the error", row)
		}
	}
}

func TestPromptColumns(t *testing.T) {
	for row, want := range map[string]Text{
		`{"prompt":"Q","answer":5}`:                    plainText("Q"),
		`{"prompt":[{"role":"user","content":"Q"}]}`:   conversation("user", "Q"),
		`{"messages":[{"role":"user","content":"Q"}]}`: conversation("user", "Q"),
		`{"prompt":"Q","messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"not this"}]}`: plainText("Q"),
		`{"prompt":null,"messages":[{"role":"user","content":"Q"}],"chosen":""}`:                              conversation("user", "Q"),
	} {
		got, _, err := StreamPrompts(mapFS("p.jsonl", row), "p.jsonl").Collect()
		if err != nil || len(got) != 1 || !reflect.DeepEqual(got[0].Prompt, want) || got[0].Source != "p.jsonl:1" {
			t.Errorf("%s: %+v, %v", row, got, err)
		}
		if others := got[0].Row; strings.Contains(row, "answer") != (len(others) == 1 && others["answer"] == json.Number("5")) {
			t.Errorf("%s: other columns %v", row, others)
		}
	}
}

func TestPromptsOfParquet(t *testing.T) {
	got, _, err := StreamPrompts(mapFS("p.parquet", parquetOf(t, struct {
		Prompt string `parquet:"prompt"`
	}{"Q"})), "p.parquet").Collect()
	if err != nil || !reflect.DeepEqual(got, []PromptRow{{Prompt: plainText("Q"), Source: "p.parquet: row 1"}}) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestPromptDrops(t *testing.T) {
	rows := `{"prompt":"a"}
{"prompt":""}
{"prompt":[]}
{"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"A"}]}
`
	prompts, report, err := StreamPrompts(mapFS("p.jsonl", rows), "p.jsonl").Collect()
	want := `p.jsonl: 4 rows read, 1 kept
  dropped 2: prompt is empty (first: p.jsonl:2)
  dropped 1: the last message is the assistant's (first: p.jsonl:4)`
	if err != nil || len(prompts) != 1 || report.String() != want {
		t.Errorf("%v, %v, report\n%s\nwant\n%s", prompts, err, report, want)
	}
}

func TestPromptErrors(t *testing.T) {
	for row, want := range map[string]string{
		"": "p.jsonl: no rows: the file is empty",
		`{"text":"Q"}`: "p.jsonl:1: found columns text, which sft reads (demonstrations): want prompt (a string or a list of {role, content}) or " +
			"messages",
		`{"prompt":5}`: "p.jsonl:1: prompt is a number",
		`{"messages":"Q"}`: "p.jsonl:1: messages is a string: want a list of {role, content}, or the column named " +
			"prompt",
		`{"prompt":`:    "p.jsonl:1: bad JSON",
		`{"prompt":""}`: "p.jsonl: all 1 rows dropped",
	} {
		prompts, _, err := StreamPrompts(mapFS("p.jsonl", row), "p.jsonl").Collect()
		wantError(t, err, want)
		if prompts != nil {
			t.Errorf("%s: a result beside the error", row)
		}
	}
}

func TestWriteLines(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.jsonl")
	texts := []Text{plainText("<think>"), conversation("user", "Q")}
	expect.OK(t, WriteLines(path, 2, func(i int) any { return map[string]any{"prompt": texts[i]} }))
	want := "{\"prompt\":\"<think>\"}\n{\"prompt\":[{\"role\":\"user\",\"content\":\"Q\"}]}\n"
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%s, %v", got, err)
	}
	if back, _, err := ReadPrompts(path); err != nil || len(back) != 2 || !back[1].Prompt.Equal(texts[1]) {
		t.Errorf("%v, %v", back, err)
	}
	wantError(t, WriteJSON(path, func() {}), "a.jsonl: not written: json: unsupported type")
	if got, _ := os.ReadFile(path); string(got) != want {
		t.Error("a failed writer harmed the file")
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("%d files left", len(entries))
	}
}

// TestPythonsNaN: NaN and Infinity, as Python writes them, harm no one in a column that is not read.
func TestPythonsNaN(t *testing.T) {
	const row = `{"prompt":"Q NaN","completion":"A","x":NaN,"y":[-Infinity,Infinity]}`
	for name, text := range map[string]string{"d.jsonl": row, "d.json": "[" + row + "]"} {
		demos, _, err := StreamDemonstrations(mapFS(name, text), name).Collect()
		if err != nil || len(demos) != 1 || demos[0].Prompt.Plain != "Q NaN" {
			t.Errorf("%s: %+v, %v", name, demos, err)
		}
	}
}

// TestPromptsKeepTheirColumns: nothing is said of columns that a row keeps for a reward.
func TestPromptsKeepTheirColumns(t *testing.T) {
	path := expect.File(t, "p.jsonl", `{"prompt":"Q","answer":"A","topic":"x"}`)
	rows, report, err := ReadPrompts(path)
	if err != nil || len(rows) != 1 || rows[0].Row["answer"] != "A" || rows[0].Row["topic"] != "x" || len(report.Lines()) != 1 {
		t.Errorf("%+v, %v, %v", rows, report, err)
	}
}
