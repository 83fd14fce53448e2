package data

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// TestDemonstrationForms: rows of other programs are read as the conversations that they are.
func TestDemonstrationForms(t *testing.T) {
	asked := conversation("user", "Who?")
	briefed := Text{Messages: append([]Message{{Role: "system", Content: "Be brief."}}, asked.Messages...)}
	for _, c := range []struct {
		row                string
		prompt, completion Text
	}{
		{`{"conversations":[{"from":"human","value":"Who?"},{"from":"gpt","value":"I."}]}`, asked,
			conversation("assistant", "I.")},
		{`{"conversations":[{"from":"human","value":"Who?"},{"from":"gpt","value":"I."}],"system":"Be brief."}`,
			briefed, conversation("assistant", "I.")},
		{`{"conversations":[{"role":"user","content":"Who?"},{"role":"assistant","content":"I."}]}`, asked,
			conversation("assistant", "I.")},
		{`{"instruction":"Who?","input":"","output":"I."}`, asked, conversation("assistant", "I.")},
		{`{"instruction":"Translate.","input":"chien","output":"dog"}`, conversation("user", "Translate.\n\nchien"),
			conversation("assistant", "dog")},
		{`{"instruction":"Who?","context":"It is late.","response":"I."}`, conversation("user", "Who?\n\nIt is late."),
			conversation("assistant", "I.")},
		{`{"system":"Be brief.","question":"Who?","answer":"I."}`, briefed, conversation("assistant", "I.")},
		{`{"system":"","question":"Who?","answer":"I."}`, asked, conversation("assistant", "I.")},
		{`{"prompt":"Who?","response":" I."}`, Text{Plain: "Who?"}, Text{Plain: " I."}},
		{`{"prompt":"Who?","system":"Be brief.","completion":"I."}`, briefed, conversation("assistant", "I.")},
		{`{"messages":[{"role":"user","content":"Who?"},{"role":"assistant","content":"I."}],"system":"Be brief."}`,
			briefed, conversation("assistant", "I.")},
		{`{"messages":[{"role":"user","content":[{"type":"text","text":"W"},{"type":"text","text":"ho?"}]},` +
			`{"role":"assistant","content":"I."}]}`, asked, conversation("assistant", "I.")},
	} {
		got, _, err := StreamDemonstrations(mapFS("d.jsonl", c.row), "d.jsonl").Collect()
		if err != nil || len(got) != 1 || !got[0].Prompt.Equal(c.prompt) || !got[0].Completion.Equal(c.completion) {
			t.Errorf("%s: %+v, %v", c.row, got, err)
		}
	}
}

// TestPreferenceForms: pairs of other programs.
func TestPreferenceForms(t *testing.T) {
	chosen, rejected := conversation("assistant", "I."), conversation("assistant", "Me.")
	briefed := Text{Messages: []Message{{Role: "system", Content: "Be brief."}, {Role: "user", Content: "Who?"}}}
	const whole = `"chosen":[{"role":"user","content":"Who?"},{"role":"assistant","content":"I."}],` +
		`"rejected":[{"role":"user","content":"Who?"},{"role":"assistant","content":"Me."}]`
	for _, c := range []struct {
		row    string
		prompt Text
	}{
		{`{"system":"Be brief.","question":"Who?","chosen":"I.","rejected":"Me."}`, briefed},
		{`{"instruction":"Who?","input":"","chosen":"I.","rejected":"Me."}`, conversation("user", "Who?")},
		{`{"input":"Who?","chosen":"I.","rejected":"Me."}`, conversation("user", "Who?")},
		{`{"conversations":[{"from":"human","value":"Who?"}],"chosen":{"from":"gpt","value":"I."},` +
			`"rejected":{"from":"gpt","value":"Me."}}`, conversation("user", "Who?")},
		{`{"question":"Who?","chosen":[{"role":"assistant","content":"I."}],` +
			`"rejected":[{"role":"assistant","content":"Me."}]}`, conversation("user", "Who?")},
		{`{"system":"Be brief.","prompt":"Who?",` + whole + `}`, briefed},
		{`{"system":"Be brief.","question":"Who?",` + whole + `}`, briefed},
		{`{"system":"Be brief.",` + whole + `}`, briefed},
		{`{"question":"Who?",` + whole + `}`, conversation("user", "Who?")},
	} {
		got, _, err := StreamPreferences(mapFS("p.jsonl", c.row), "p.jsonl", PreferenceOptions{}).Collect()
		if err != nil || len(got) != 1 || !got[0].Prompt.Equal(c.prompt) || !got[0].Chosen.Equal(chosen) ||
			!got[0].Rejected.Equal(rejected) {
			t.Errorf("%s: %+v, %v", c.row, got, err)
		}
	}
}

// TestPromptsBesideAnswers: a file of prompts may have answers that are no texts, such as numbers.
func TestPromptsBesideAnswers(t *testing.T) {
	for _, row := range []string{`{"question":"2+2?","answer":4}`,
		`{"prompt":[{"role":"user","content":"2+2?"}],"answer":4,"completion":[5]}`} {
		got, _, err := StreamPrompts(mapFS("p.jsonl", row), "p.jsonl").Collect()
		if err != nil || len(got) != 1 || !got[0].Prompt.Equal(conversation("user", "2+2?")) {
			t.Errorf("%s: %+v, %v", row, got, err)
		}
	}
	_, _, err := StreamDemonstrations(mapFS("d.jsonl", `{"question":"2+2?","answer":4}`), "d.jsonl").Collect()
	expect.Error(t, err, "d.jsonl:1: answer is a number: want a string")
}

// TestToolCalls: the first message has the row's tools, and a message that calls one is kept whole, in the file's order.
func TestToolCalls(t *testing.T) {
	const tools, call = `[{"type":"function","function":{"name":"clock","a":1.50}}]`,
		`{"role":"assistant","tool_calls":[{"name":"clock","arguments":{"zone":"é","at":null}}],"content":null}`
	for _, written := range []string{tools, strconv.Quote(tools)} {
		row := `{"tools":` + written + `,"messages":[{"role":"user","content":"When?"},` + call +
			`,{"role":"tool","name":"clock","content":"9:30"},{"role":"assistant","content":"At 9:30.","train":true}]}`
		got, report, err := StreamDemonstrations(mapFS("d.jsonl", row), "d.jsonl").Collect()
		if err != nil || len(got) != 1 || len(report.Remarks) > 0 {
			t.Fatalf("%+v, %v, %v", got, report, err)
		}
		all := slices.Concat(got[0].Prompt.Messages, got[0].Completion.Messages)
		want := []Message{{Role: "user", Content: "When?", Tools: tools}, {Role: "assistant", Whole: call},
			{Role: "tool", Content: "9:30", Untrained: true, Whole: `{"role":"tool","name":"clock","content":"9:30"}`},
			{Role: "assistant", Content: "At 9:30."}}
		if !slices.Equal(all, want) || len(got[0].Prompt.Messages) != 1 {
			t.Errorf("%+v\nwant %+v", all, want)
		}
		path := filepath.Join(t.TempDir(), "d.jsonl")
		err = WriteAll(path, got)
		line, _ := os.ReadFile(path)
		again, _, err2 := StreamDemonstrations(mapFS("d.jsonl", string(line)), "d.jsonl").Collect()
		if err != nil || err2 != nil || !reflect.DeepEqual(got, again) {
			t.Errorf("%s: %+v, %v, %v", line, again, err, err2)
		}
	}
}

// TestCallsInRenamedColumns: a column by another name, or a field of an object, has its calls, thoughts and tools, in
// the order of the file; of a table, too.
func TestCallsInRenamedColumns(t *testing.T) {
	const tools = `[{"name":"clock","a":1}]`
	const answer = `{"role":"assistant","tool_calls":[{"name":"clock"}],"content":"So."}`
	const turns = `[{"role":"user","content":"Q"},` + answer + `]`
	for row, columns := range map[string][]string{
		`{"trajectory":` + turns + `,"functions":` + tools + `}`:        {"messages=trajectory", "tools=functions"},
		`{"case":{"turns":` + turns + `,"can":` + tools + `},"text":1}`: {"messages=case.turns", "tools=case.can"},
		`{"a":[{"role":"user","content":"Q"}],"b":[` + answer + `],"tools":` + tools + `}`: {"prompt=a",
			"completion=b"},
		`{"messages":` + tools + `,"tools":` + turns + `}`: {"messages=tools", "tools=messages"},
	} {
		got, _, err := StreamDemonstrations(mapFS("d.jsonl", row), "d.jsonl", columns...).Collect()
		if err != nil || got[0].Prompt.Messages[0].Tools != tools || got[0].Completion.Messages[0].Whole != answer {
			t.Errorf("%s: %+v, %v", row, got, err)
		}
	}
	type message struct {
		Role     string `parquet:"role"`
		Content  string `parquet:"content"`
		Thinking string `parquet:"thinking,optional"`
	}
	type row struct {
		Dialog []message `parquet:"dialog,list"`
	}
	table := parquetOf(t, row{[]message{{Role: "user", Content: "Q"}, {"assistant", "A", "So?"}}})
	got, _, err := StreamDemonstrations(mapFS("d.parquet", table), "d.parquet", "messages=dialog").Collect()
	if err != nil || got[0].Completion.Messages[0].Thoughts() != "So?" {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestTools: where tools cannot be used, the report says so; what is no list of tools is refused. A pair without a
// prompt has them in both answers.
func TestTools(t *testing.T) {
	_, report, err := StreamDemonstrations(mapFS("d.jsonl", `{"tools":[1],"text":"a"}`), "d.jsonl").Collect()
	if err != nil || !strings.Contains(report.String(), "note: 1: the column tools is not used: the row has no conv") {
		t.Error(report, err)
	}
	_, report, err = StreamDemonstrations(mapFS("d.jsonl", `{"tools":[],"text":"a"}`), "d.jsonl").Collect()
	if err != nil || len(report.Remarks) > 0 {
		t.Error(report, err)
	}
	for tools, want := range map[string]string{`3`: "d.jsonl:1: tools is a number: want a list",
		`"{}"`: "d.jsonl:1: tools is an object: want a list", `"["`: "d.jsonl:1: tools is no JSON: "} {
		row := `{"tools":` + tools + `,"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"A"}]}`
		_, _, err := StreamDemonstrations(mapFS("d.jsonl", row), "d.jsonl").Collect()
		expect.Error(t, err, want)
	}
	const question = `{"role":"user","content":"Q"}`
	row := `{"tools":[1],"chosen":[` + question + `,{"role":"assistant","content":"A"}],"rejected":[` + question +
		`,{"role":"assistant","content":"B"}]}`
	pairs, _, err := StreamPreferences(mapFS("p.jsonl", row), "p.jsonl", PreferenceOptions{}).Collect()
	if err != nil || len(pairs) != 1 || !slices.Equal(pairs[0].Prompt.Messages,
		[]Message{{Role: "user", Content: "Q", Tools: "[1]"}}) {
		t.Errorf("%+v, %v", pairs, err)
	}
}

// TestFormFaults: what cannot be understood is refused, with the place; no prompt is guessed beside unused texts.
func TestFormFaults(t *testing.T) {
	for row, want := range map[string]string{
		`{"task":"Say who.","chosen":"Here is the one.","rejected":"Here is the other."}`: "x.jsonl:1: there is no " +
			"column prompt, and the texts in task are not used: want the prompt in prompt, question",
		`{"conversations":[{"from":"narrator","value":"a"}],"chosen":"a","rejected":"b"}`: "x.jsonl:1: " +
			`prompt[0].from is "narrator": want human, gpt, system or tool`,
		`{"question":["a"],"chosen":"a","rejected":"b"}`: "question is a list: want a string",
		`{"prompt":[{"role":"user","content":[{"type":"image"}]}],"chosen":[],"rejected":[]}`: "prompt[0].content[0]" +
			`.type is "image": want text`,
		`{"system":"a b","prompt":[{"role":"system","content":"c"}],"chosen":[],"rejected":[]}`: "there is a column " +
			"system, and prompt begins with a system message, too",
		`{"prompt":[{"role":"user","content":[{"type":5}]}],"chosen":[],"rejected":[]}`: "prompt[0].content[0]" +
			`.type is "5": want text`,
		`{"system":7,"prompt":"a","chosen":"b","rejected":"c"}`: "system is a number: want a string",
	} {
		_, _, err := StreamPreferences(mapFS("x.jsonl", row), "x.jsonl", PreferenceOptions{}).Collect()
		expect.Error(t, err, want)
	}
}
