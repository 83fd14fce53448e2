package records

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// TestPeersForms: the forms that other programs document are read as they read them, or refused: the table of
// docs/data.md. want is what data convert writes, or an error.
func TestPeersForms(t *testing.T) {
	dir := t.TempDir()
	const (
		q, a, b, s = `{"role":"user","content":"Q q"}`, `{"role":"assistant","content":"A a"}`,
			`{"role":"assistant","content":"B b"}`, `{"role":"system","content":"S s"}`
		earlier      = `{"role":"user","content":"E"},{"role":"assistant","content":"F"}`
		demo         = `{"prompt":[` + q + `],"completion":[` + a + `]}`
		briefed      = `{"prompt":[` + s + `,` + q + `],"completion":[` + a + `]}`
		conversation = `{"prompt":[` + earlier + `,` + q + `],"completion":[` + a + `]}`
		pair         = `{"prompt":[` + q + `],"chosen":[` + a + `],"rejected":[` + b + `]}`
		sPair        = `{"prompt":[` + s + `,` + q + `],"chosen":[` + a + `],"rejected":[` + b + `]}`
		plain        = `{"prompt":"Q q","chosen":"A a","rejected":"B b"}`
		label        = `{"prompt":[` + q + `],"completion":[` + a + `],"label":false}`
		other        = `{"role":"user","content":"E"},{"role":"assistant","content":"F"`
		rest         = `,` + q + `,` + a + `]}`
		muted        = `{"prompt":[` + other + `,"train":false},` + q + `],"completion":[` + a + `]}`
		lacks        = ", which the record lacks: want it in the columns that are read ("
	)
	type form struct{ row, want string }
	forms := []form{
		// TRL
		{`{"text":"A a"}`, `{"text":"A a"}`},
		{`{"messages":[` + q + `,` + a + `]}`, demo},
		{`{"prompt":"Q q","completion":"A a"}`, `{"prompt":"Q q","completion":"A a"}`},
		{demo, demo},
		{plain, plain},
		{pair, pair},
		{`{"chosen":[` + q + `,` + a + `],"rejected":[` + q + `,` + b + `]}`, pair},
		{`{"prompt":"Q q","completion":"A a","label":false}`, `{"prompt":"Q q","completion":"A a","label":false}`},
		{label, label},
		{`{"messages":[` + q + `,` + a + `],"tools":[{"name":"t"}]}`, demo[:len(demo)-1] + `,"tools":[{"name":"t"}]}`},
		{`{"messages":[` + q + `,` + a + `],"chat_template_kwargs":{"enable_thinking":false}}`,
			"the column chat_template_kwargs is not read: want the same variables for all rows, in chat.variables"},
		{`{"messages":[` + q + `,` + a + `],"images":["x.png"]}`, "the column images is not read: models of texts alone"},
		{`{"prompt":"Q q","completions":["A"],"labels":[true]}`, "found columns completions, labels, prompt: want"},
		// Alpaca (LLaMA-Factory, Axolotl, Unsloth)
		{`{"instruction":"Q q","input":"","output":"A a","system":"S s"}`, briefed},
		{`{"instruction":"Q","input":"q","output":"A a"}`, strings.Replace(demo, "Q q", `Q\n\nq`, 1)},
		{`{"instruction":"Q q","input":"","output":"A a","text":"### Q q ### A a"}`, `{"text":"### Q q ### A a"}`},
		{`{"instruction":"Q q","output":"A a","history":[["E","F"]]}`, conversation},
		{`{"instruction":"Q q","output":"A a","system":"S s","history":[["E","F"]]}`,
			`{"prompt":[` + s + `,` + earlier + `,` + q + `],"completion":[` + a + `]}`},
		{`{"prompt":"Q q","response":"A a","history":[` + earlier + `]}`, conversation},
		{`{"instruction":"Q q","output":"A a","history":["E"]}`, "history[0] is a string: want [question, answer], or"},
		{`{"messages":[` + q + `,` + a + `],"history":[["E","F"]]}`, `the column history has "E"` + lacks + "messages)"},
		{`{"instruction":"Q q","input":"","chosen":"A a","rejected":"B b"}`, pair},
		{`{"instruction":"Q q","history":[["E","F"]],"chosen":"A a","rejected":"B b"}`,
			`{"prompt":[` + earlier + `,` + q + `],"chosen":[` + a + `],"rejected":[` + b + `]}`},
		{`{"instruction":"Q q","output":"A a","kto_tag":false}`, label},
		// ShareGPT (LLaMA-Factory, Axolotl, Unsloth)
		{`{"conversations":[{"from":"human","value":"Q q"},{"from":"gpt","value":"A a"}],"system":"S s"}`, briefed},
		{`{"conversations":[{"from":"human","value":"Q q"}],"chosen":{"from":"gpt","value":"A a"},` +
			`"rejected":{"from":"gpt","value":"B b"}}`, pair},
		{`{"conversations":[{"from":"human","value":"Q q"},{"from":"gpt","value":"A a"}],"kto_tag":false}`, label},
		{`{"conversations":[{"from":"human","value":"Q q"},{"from":"function_call","value":"{}"},` +
			`{"from":"gpt","value":"A a"}]}`, `messages[1].from is "function_call": want human, gpt, system or tool`},
		// Axolotl
		{`{"messages":[` + s + `,` + q + `],"chosen":` + a + `,"rejected":` + b + `}`, sPair},
		{`{"messages":[` + q + `],"chosen":"A a","rejected":"B b"}`, pair},
		{`{"messages":[` + q + `,` + a + `],"chosen":"A a","rejected":"B b"}`,
			"messages ends with the assistant's message, beside chosen and rejected: want it to end with what they answer"},
		{`{"prompt":"Q q","messages":[` + s + `,` + q + `],"chosen":"A a","rejected":"B b"}`,
			`the column messages has "S s"` + lacks + "prompt, chosen, rejected)"},
		{`{"prompt":"Q q","chosen":[` + q + `,` + a + `],"rejected":[` + q + `,` + b + `],"messages":[` + q +
			`,` + a + `]}`, pair}, // UltraFeedback
		{`{"prompt":"Q q","chosen":` + a + `,"rejected":` + b + `}`, pair},
		{`{"instruction":"Q q","chosen_response":"A a","rejected_response":"B b"}`, pair},
		{`{"system":"S s","input":"Q q","chosen":"A a","rejected":"B b"}`, sPair},
		{`{"system":"S s","question":"Q q","chosen":"A a","rejected":"B b"}`, sPair},
		{`{"system":"S s","prompt":"Q q","chosen":"A a","rejected":"B b"}`, sPair},
		{`{"system":"S s","question":"Q q","completion":"A a","label":false}`, strings.Replace(label, "[", "["+s+",", 1)},
		{`{"instruction":"Q q","completion":"A a","label":false}`, label},
		{`{"system_prompt":"S s","question":"Q q","response":"A a"}`, briefed}, // OpenOrca
		{`{"prompt":"Q q","generation":"A a"}`, `{"prompt":"Q q","completion":"A a"}`},
		{`{"question":"Q q","answer":"A a","article":"T"}`, `the column article has "T"` + lacks + "prompt, completion)"},
		{`{"question":"Q q","choices":["T","U"],"answer":"A a"}`, `the column choices has "T"` + lacks},
		{`{"instruction":"Q q","output":"A a","reflection":"R","corrected":"C"}`, `the column corrected has "C"` + lacks},
		{`{"segments":[{"label":true,"text":"T"}]}`, "found columns segments: want"},
		{`{"conversations":[{"from":"human","value":"Q q"},{"from":"gpt","value":"A a",` +
			`"train_detail":[{"begin_offset":0}]}]}`,
			"messages[1].train_detail is not read: want train, true or false, of whole messages"},
		// ms-swift
		{`{"system":"S s","conversation":[{"human":"Q q","assistant":"A a"}]}`, briefed},
		{`{"system":"","query":"Q q","response":"A a","history":[["E","F"]]}`, conversation},
		{`{"messages":[` + s + `,` + q + `,` + a + `],"rejected_response":"B b"}`, sPair},
		{`{"query":"Q q","response":"A a","rejected_response":"B b","history":[["E","F"]]}`,
			`{"prompt":[` + earlier + `,` + q + `],"chosen":[` + a + `],"rejected":[` + b + `]}`},
		{`{"messages":[` + q + `,` + a + `],"rejected_messages":[` + q + `,` + b + `]}`, pair},
		{`{"messages":[` + q + `,` + a + `],"label":false}`, label},
		// OpenAI, Together
		{`{"input":{"messages":[` + q + `],"tools":[],"parallel_tool_calls":true},"preferred_output":[` + a +
			`],"non_preferred_output":[` + b + `]}`, pair},
		{`{"input":{"messages":[` + q + `],"tools":[{"name":"t"}]},"preferred_output":[` + a +
			`],"non_preferred_output":[` + b + `]}`, pair[:len(pair)-1] + `,"tools":[{"name":"t"}]}`},
		// conversations as texts, as tables and files of Python have them
		{`{"messages":"[{\"role\":\"user\",\"content\":\"Q\"}]","chosen":"A a","rejected":"B b"}`,
			"messages is a conversation as a text: want a list of {role, content}"},
		{`{"prompt":"[{'role': 'user', 'content': 'Q'}]","completion":"A a"}`, "prompt is a conversation as a text"},
		{`{"chosen":"[{\"from\": \"human\", \"value\": \"Q\"}]","rejected":"[]"}`, "chosen is a conversation as a text"},
		{`{"prompt":"A chat?","completion":"[{\"role\": \"user\"}]"}`,
			`{"prompt":"A chat?","completion":"[{\"role\": \"user\"}]"}`},
		// switches of single messages
		{`{"messages":[` + other + `,"masked":true}` + rest, "messages[1].masked is not read: want train, true or false"},
		{`{"messages":[` + other + `,"weight":0.5}` + rest, "messages[1].weight is 0.5: want true or false, or 1 or 0"},
		{`{"messages":[` + other + `,"loss":"no"}` + rest, "messages[1].loss is a string: want true or false, or 1 or 0"},
		{`{"prompt":"Q q","chosen":[{"role":"assistant","content":"A a","weight":0}],"rejected":[` + b + `]}`,
			`an answer has "train": false, or content null: both answers of a pair are trained on whole`},
	}
	for _, off := range []string{`"train":false`, `"training":false`, `"weight":0`, `"loss":false`, `"loss_mask":0`,
		`"loss_scale":0.0`, `"trainable":false`, `"loss_weight":0`} {
		forms = append(forms, form{`{"messages":[` + other + `,` + off + `}` + rest, muted})
	}
	for _, c := range forms {
		out := filepath.Join(dir, "out.jsonl")
		_, _, _, err := Convert(lineFile(t, dir, c.row), out, data.PreferenceOptions{})
		if !strings.HasPrefix(c.want, "{") {
			expect.Error(t, err, c.want)
			continue
		}
		if got, _ := os.ReadFile(out); err != nil || strings.TrimSpace(string(got)) != c.want {
			t.Errorf("%s:\n got %s\nwant %s\n%v", c.row, got, c.want, err)
		}
	}
}

// TestUnreadColumns: columns that no reader knows are named once, with their rows.
func TestUnreadColumns(t *testing.T) {
	path := lineFile(t, t.TempDir(), `{"prompt":"Q","completion":"A","source":"web","id":1}`+"\n"+
		`{"prompt":"R","completion":"A","source":null,"id":2}`)
	_, _, report, err := Read(path, data.PreferenceOptions{})
	if want := "columns that are not read, with their rows: id (2), source (1)"; err != nil ||
		report.UnreadColumns() != want {
		t.Errorf("%v, %v, want %s", report, err, want)
	}
}
