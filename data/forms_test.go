package data

import (
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// TestDemonstrationForms: rows of other programs are read as the conversations that they are.
func TestDemonstrationForms(t *testing.T) {
	asked := talk("user", "Who?")
	briefed := Text{Messages: append([]Message{{Role: "system", Content: "Be brief."}}, asked.Messages...)}
	for _, c := range []struct {
		row                string
		prompt, completion Text
	}{
		{`{"conversations":[{"from":"human","value":"Who?"},{"from":"gpt","value":"I."}]}`, asked,
			talk("assistant", "I.")},
		{`{"conversations":[{"from":"human","value":"Who?"},{"from":"gpt","value":"I."}],"system":"Be brief."}`,
			briefed, talk("assistant", "I.")},
		{`{"conversations":[{"role":"user","content":"Who?"},{"role":"assistant","content":"I."}]}`, asked,
			talk("assistant", "I.")},
		{`{"instruction":"Who?","input":"","output":"I."}`, asked, talk("assistant", "I.")},
		{`{"instruction":"Translate.","input":"chien","output":"dog"}`, talk("user", "Translate.\n\nchien"),
			talk("assistant", "dog")},
		{`{"instruction":"Who?","context":"It is late.","response":"I."}`, talk("user", "Who?\n\nIt is late."),
			talk("assistant", "I.")},
		{`{"system":"Be brief.","question":"Who?","answer":"I."}`, briefed, talk("assistant", "I.")},
		{`{"system":"","question":"Who?","answer":"I."}`, asked, talk("assistant", "I.")},
		{`{"prompt":"Who?","response":" I."}`, Text{Plain: "Who?"}, Text{Plain: " I."}},
		{`{"prompt":"Who?","system":"Be brief.","completion":"I."}`, briefed, talk("assistant", "I.")},
		{`{"messages":[{"role":"user","content":"Who?"},{"role":"assistant","content":"I."}],"system":"Be brief."}`,
			briefed, talk("assistant", "I.")},
		{`{"messages":[{"role":"user","content":[{"type":"text","text":"W"},{"type":"text","text":"ho?"}]},` +
			`{"role":"assistant","content":"I."}]}`, asked, talk("assistant", "I.")},
	} {
		got, _, err := readDemonstrations(files("d.jsonl", c.row), "d.jsonl")
		if err != nil || len(got) != 1 || !got[0].Prompt.Equal(c.prompt) || !got[0].Completion.Equal(c.completion) {
			t.Errorf("%s: %+v, %v", c.row, got, err)
		}
	}
}

// TestPreferenceForms: pairs of other programs.
func TestPreferenceForms(t *testing.T) {
	chosen, rejected := talk("assistant", "I."), talk("assistant", "Me.")
	for _, c := range []struct {
		row    string
		prompt Text
	}{
		{`{"system":"Be brief.","question":"Who?","chosen":"I.","rejected":"Me."}`,
			Text{Messages: []Message{{Role: "system", Content: "Be brief."}, {Role: "user", Content: "Who?"}}}},
		{`{"instruction":"Who?","input":"","chosen":"I.","rejected":"Me."}`, talk("user", "Who?")},
		{`{"input":"Who?","chosen":"I.","rejected":"Me."}`, talk("user", "Who?")},
		{`{"conversations":[{"from":"human","value":"Who?"}],"chosen":{"from":"gpt","value":"I."},` +
			`"rejected":{"from":"gpt","value":"Me."}}`, talk("user", "Who?")},
		{`{"question":"Who?","chosen":[{"role":"user","content":"Who?"},{"role":"assistant","content":"I."}],` +
			`"rejected":[{"role":"user","content":"Who?"},{"role":"assistant","content":"Me."}]}`,
			talk("user", "Who?")},
	} {
		got, _, err := ReadPreferencesFS(files("p.jsonl", c.row), "p.jsonl", PreferenceOptions{})
		if err != nil || len(got) != 1 || !got[0].Prompt.Equal(c.prompt) || !got[0].Chosen.Equal(chosen) ||
			!got[0].Rejected.Equal(rejected) {
			t.Errorf("%s: %+v, %v", c.row, got, err)
		}
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
		`{"system":7,"prompt":"a","chosen":"b","rejected":"c"}`: "system is a number: want a string",
	} {
		_, _, err := ReadPreferencesFS(files("x.jsonl", row), "x.jsonl", PreferenceOptions{})
		expect.Error(t, err, want)
	}
}
