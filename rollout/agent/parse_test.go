package agent

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/tokenizer"
)

// written is what was read, in short: calls, then what is said.
func written(s said) string {
	var all []string
	for _, c := range s.calls {
		arguments, _ := json.Marshal(c.Arguments)
		if c.fault != "" {
			all = append(all, "! "+c.fault)
		} else {
			all = append(all, c.Name+string(arguments))
		}
	}
	return strings.Join(append(all, s.content), " | ")
}

const none = "! No tool was called: "

func TestRead(t *testing.T) {
	const object, want = none + "the call is no JSON object; want ", `{"name": "TOOL", "arguments": {"NAME": "VALUE"}}`
	for _, c := range []struct {
		form       Form
		text, want string
	}{
		{Hermes, "Hello.", "Hello."},
		{Hermes, "<tool_call>\n{\"name\": \"a\", \"arguments\": {\"x\": 1}}\n</tool_call>", `a{"x":1} | `},
		{Hermes, "Both.\n<tool_call>{\"name\": \"a\"}</tool_call>\n<tool_call>{\"arguments\": \"{\\\"x\\\": []}\", \"name\": \"b\"}",
			`a{} | b{"x":[]} | Both.`},
		{Hermes, "<tool_call>{\"name\": \"a\", \"arguments\": {\"x\": \"</tool_call><tool_call>\"}}</tool_call>",
			`a{"x":"\u003c/tool_call\u003e\u003ctool_call\u003e"} | `},
		{Hermes, "<think>\n<tool_call>{\"name\": \"a\"}</tool_call>\n</think>\n\nNo.", "No."},
		{Hermes, "I could <tool_call>{\"name\": \"a\"}</tool_call> now\n</think>\n<tool_call>{\"name\": \"b\"}</tool_call>", "b{} | "},
		{Hermes, "<think>a</think><think>b</think>c", "c"},
		{Hermes, "<think>\n<tool_call>{\"name\": \"a\"}</tool_call>", ""},
		{Hermes, "<tool_call>\n{\"name\": \"a\"}\n{\"name\": \"b\"}\n</tool_call>", "a{} | b{} | "},
		{Hermes, "<tool_call>look at it</tool_call>", object + want + " | "},
		{Hermes, "<tool_call>{\"name\": \"a\", }</tool_call><tool_call>{\"name\": \"b\"}</tool_call>", object + want + " | b{} | "},
		{Hermes, "<tool_call>[1]</tool_call>", object + want + " | "},
		{Hermes, "<tool_call>", object + want + " | "},
		{Hermes, "<tool_call>{\"arguments\": {}}</tool_call>", none + "the call has no name; want " + want + " | "},
		{Hermes, "<tool_call>{\"name\": 7, \"arguments\": {}}</tool_call>", none + "the call has no name; want " + want + " | "},
		{Hermes, "<tool_call>{\"name\": \"a\", \"arguments\": [1]}</tool_call>",
			none + `the arguments of "a" are no JSON object; want ` + want + " | "},
		{Hermes, "<tool_call>{\"name\": \"a\", \"arguments\": \"x=1\"}</tool_call>",
			none + `the arguments of "a" are no JSON object; want ` + want + " | "},
		{Hermes, "<tool_call>{\"name\": \"a\", \"arguments\": null}</tool_call>", "a{} | "},
		{Llama3, "{\"name\": \"a\", \"parameters\": {\"x\": \"y\"}}", `a{"x":"y"} | `},
		{Llama3, " <|python_tag|>{\"name\": \"a\", \"parameters\": {}}; {\"name\": \"b\", \"arguments\": {}}", "a{} | b{} | "},
		{Llama3, "<|python_tag|>brave.call(query=\"x\")", object + accepted[Llama3] + " | "},
		{Llama3, "{\"name\": \"a\", \"parameters\": {\"x\"}}", object + accepted[Llama3] + " | "},
		{Llama3, "{\"name\": \"a\"} and {more}", "a{} | "},
		{Llama3, "It is {\"name\": \"a\"}.", `It is {"name": "a"}.`},
		{Llama3, "\n<tool_call>\n{\"name\":\"a\",\"arguments\":\"{}\"}\n</tool_call>", "a{} | "}, // as a server gives it
		{Mistral, "[TOOL_CALLS] [{\"name\": \"a\", \"arguments\": {\"x\": 1}}, {\"name\": \"b\", \"arguments\": {}}]", `a{"x":1} | b{} | `},
		{Mistral, "So. [TOOL_CALLS]a[ARGS]{\"x\": 1}[TOOL_CALLS]b[CALL_ID]abcdefghi[ARGS]{}", `a{"x":1} | b{} | So.`},
		{Mistral, "[TOOL_CALLS]a{\"x\": 1}", `a{"x":1} | `},
		{Mistral, "[TOOL_CALLS]{\"name\": \"a\"}", "a{} | "},
		{Mistral, "[TOOL_CALLS] [{\"name\": \"a\"", object + accepted[Mistral] + " | "},
		{Mistral, "[TOOL_CALLS][ARGS]{}", none + "the call has no name; want " + accepted[Mistral] + " | "},
		{Mistral, "[TOOL_CALLS] []", ""},
		{Text, "Thought: now.\nAction: Send\nAction Input: {\"text\": \"Action: go\"}\nObservation: sent\nAction: B", `Send{"text":"Action: go"} | Thought: now.`},
		{Text, "Action: A\nAction Input: {}\nAction: B\nAction Input:\n{\"x\": 1} then", `A{} | B{"x":1} | `},
		{Text, "Action: A\nAction: B\nAction Input: {}", none + `the arguments of "A" are no JSON object; want ` + accepted[Text] + " | B{} | "},
		{Text, "Action: A", none + `the arguments of "A" are no JSON object; want ` + accepted[Text] + " | "},
		{Text, "Action:\nAction Input: {}", none + "the call has no name; want " + accepted[Text] + " | "},
		{Text, "Action Input: {}", none + "the call has no name; want " + accepted[Text] + " | "},
		{Text, "Thought: done.\nFinal Answer: May 10", "May 10"},
		{Text, "<tool_call>{\"name\": \"a\"}</tool_call>", `<tool_call>{"name": "a"}</tool_call>`},
	} {
		if got := written(c.form.read(c.text)); got != c.want {
			t.Errorf("%s, %q:\n got  %s\n want %s", c.form, c.text, got, c.want)
		}
	}
}

// TestWrite: a message that a form writes is read again, with its thought.
func TestWrite(t *testing.T) {
	for _, c := range []struct {
		form             Form
		folder, template string
		want             string
	}{
		{Hermes, "qwen2-older", "", callOf[Hermes]},
		{Llama3, "llama3-newer", "", callOf[Llama3]},
		{Mistral, "mistral-newer", "", `[TOOL_CALLS] [{"name": "look", "arguments": {"at": "x"}, "id": "call00002"}]`},
		{Mistral, "mistral-newer", newer, `[TOOL_CALLS]look[ARGS]{"at": "x"}`},
		{Text, "qwen2-older", "", strings.TrimSpace(callOf[Text])},
	} {
		tok := load(t, c.folder, tokenizer.ChatOptions{Template: c.template}).Tokenizer
		text, err := c.form.Write(tok, "<think>so</think>", "look", json.RawMessage(`{"at": "x"}`), 2)
		if want := "<think>so</think>\n" + c.want; err != nil || text != want {
			t.Errorf("%s: got %q, %v, want %q", c.form, text, err, want)
		}
		if s := c.form.read(text); written(s) != `look{"at":"x"} | ` || s.before != "<think>so</think>" {
			t.Errorf("%s: read %s behind %q", c.form, written(s), s.before)
		}
	}
	tok := load(t, "llama3-newer", tokenizer.ChatOptions{Template: "{% for m in messages %}{{ m.content }}" +
		"{% if not m.tool_calls %}!{% endif %}{% endfor %}"}).Tokenizer
	_, err := Llama3.Write(tok, "", "look", json.RawMessage("{}"), 1)
	expect.Error(t, err, `the chat template does not end a message with tool calls as other messages ("!")`)
}

// TestContent: what a stream may show of a message before it is whole.
func TestContent(t *testing.T) {
	for _, c := range []struct {
		form       Form
		text, want string
	}{
		{Hermes, "I look. <tool_call>{", "I look."}, {Hermes, "a < b", "a < b"}, {Hermes, "a <tool", "a"},
		{Hermes, "Action: x", "Action: x"}, {Mistral, "So: [TOOL_", "So:"}, {Mistral, "[1]", "[1]"},
		{Llama3, "{\"name", ""}, {Llama3, "<think>a</think>\n{", "<think>a</think>"}, {Llama3, "x {", "x {"},
		{Llama3, "x <|python", "x"}, {Text, "Well.\nAct", "Well."}, {Text, "Final Answer: x", ""},
	} {
		if got := c.text[:c.form.Content(c.text)]; got != c.want {
			t.Errorf("%s, %q: %q, want %q", c.form, c.text, got, c.want)
		}
	}
}

// FuzzRead: whatever a model writes, its calls have a name and arguments, or one line that says what is wrong, and its
// messages can be written again.
func FuzzRead(f *testing.F) {
	for _, text := range []string{"<think>a</think>b<tool_call>{\"name\": \"a\", \"arguments\": \"{}\"}</tool_call>",
		"{\"name\": \"a\", \"parameters\": {\"x\": 1e999}};{}", "[TOOL_CALLS] [{\"name\": \"a\"}, 1]", "[TOOL_CALLS]a[ARGS]{\"x\": {}}",
		"Action: a\nAction Input: {\"x\": [1]}\nObservation: b", "Final Answer: \xff", "<|python_tag|>x"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for form := range accepted {
			s := form.read(text)
			x := exchange{said: s, form: form, heard: []string{"r"}}
			for i, c := range s.calls {
				x.ids, x.heard = append(x.ids, "call"), append(x.heard[:i], "r")
				fault := c.fault != ""
				if fault == (c.Name != "" && c.Arguments != nil) && fault != strings.HasPrefix(c.fault, "No tool") ||
					strings.Contains(c.fault, "\n") || !json.Valid(c.rawArguments) {
					t.Errorf("%s, %q: %+v", form, text, c)
				}
			}
			for _, how := range []writing{{}, {verbatim: true}, {probing: true}, {true, true}} {
				for _, m := range x.messages(how) {
					if m.Whole != "" && !json.Valid([]byte(m.Whole)) || how.probing && m.Role == "assistant" &&
						!strings.Contains(m.Whole+m.Content, probe) {
						t.Errorf("%s, %q: %+v", form, text, m)
					}
				}
			}
			if utf8.ValidString(text) && !utf8.ValidString(s.content+s.before) {
				t.Errorf("%s, %q: %q", form, text, s.content)
			}
		}
	})
}
