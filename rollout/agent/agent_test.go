package agent

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/internal/testkit/need"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/tokenizer"
)

func TestMain(m *testing.M) { os.Exit(expect.NoLeaks(m)) }

// recorder gives results in turn, again and again, and is over after some calls and messages.
type recorder struct {
	tools   string
	results []string
	over    int // 0: never
	fails   error
	heard   []string
	calls   []Call
}

func (r *recorder) Tools() json.RawMessage { return json.RawMessage(r.tools) }

func (r *recorder) Call(c Call) (string, bool, error) {
	arguments, _ := json.Marshal(c.Arguments)
	r.calls = append(r.calls, c)
	return r.hear(c.Name + string(arguments))
}

func (r *recorder) Say(message string) (string, bool, error) { return r.hear(message) }

func (r *recorder) hear(what string) (string, bool, error) {
	r.heard = append(r.heard, what)
	return r.results[(len(r.heard)-1)%len(r.results)], len(r.heard) == r.over, r.fails
}

func load(t *testing.T, folder string, chat tokenizer.ChatOptions) *batch.Encoder {
	t.Helper()
	tok, err := tokenizer.Load(filepath.Join("..", "..", "tokenizer", "testdata", folder))
	if err == nil && (chat.Template != "" || chat.Variables != nil) {
		err = tok.SetChat(chat)
	}
	expect.OK(t, err)
	return &batch.Encoder{Tokenizer: tok}
}

// chat is a conversation as transformers writes it.
type chat struct {
	Form     Form
	Folder   string
	Messages []struct {
		Role    string
		Content string
		Calls   []struct{ Function Call } `json:"tool_calls"`
	}
	Text string
}

// follow holds a conversation in which the model says what is in the text: prompt, what it says and what it reads make
// the whole text, and its tokens.
func (c chat) follow(t *testing.T, e *batch.Encoder, tools string) {
	t.Helper()
	env, calls := &recorder{tools: tools}, []Call(nil)
	first := 0
	for i, m := range c.Messages {
		if m.Role == "assistant" {
			first = cmp.Or(first, i)
		} else if first > 0 {
			env.results = append(env.results, strings.TrimPrefix(m.Content, "Observation: "))
		}
		for _, call := range m.Calls {
			calls = append(calls, call.Function)
		}
	}
	env.results = append(env.results, "")
	env.over = len(env.results)
	var asked []data.Message
	for _, m := range c.Messages[:first] {
		asked = append(asked, data.Message{Role: m.Role, Content: m.Content})
	}
	w := &World{Encoder: e, Form: c.Form, Environment: env, Messages: asked, Name: "x"}
	if c.Form != Text {
		w.Messages = Prompt(c.Form, asked, env)
	}
	ids := expect.Must(w.prompt())(t)
	end := expect.Must(w.end())(t)
	for over := false; !over; {
		rest, found := strings.CutPrefix(c.Text, e.Tokenizer.Decode(ids, false))
		said, after, ends := strings.Cut(rest, end)
		if !found || !ends {
			t.Fatalf("%s: got\n%q, want the beginning of\n%q", c.Form, e.Tokenizer.Decode(ids, false), c.Text)
		}
		drawn := expect.Must(e.Tokenizer.Encode(said+end, false))(t)
		reply := expect.Must(w.Reply(rollout.Completion{Tokens: drawn, Text: said, Reason: rollout.EOS}))(t)
		if ids, over = slices.Concat(ids, drawn, reply), len(reply) == 0; over && strings.TrimSpace(after) != "" {
			t.Errorf("%s: over, before %q", c.Form, after)
		}
	}
	if whole, err := e.Tokenizer.Encode(strings.TrimRight(c.Text, "\n"), false); err != nil || !slices.Equal(ids, whole) {
		t.Errorf("%s: tokens %v, %v, want %v", c.Form, ids, err, whole)
	}
	got, want := marshal(t, env.calls), marshal(t, calls) // numbers as they are written
	if c.Form != Text && got != want {
		t.Errorf("%s: calls %s, want %s", c.Form, got, want)
	}
}

// TestAsTransformers: scripts/oracle/tool_chats.py has transformers write whole conversations with two calls.
func TestAsTransformers(t *testing.T) {
	var f struct {
		Tools json.RawMessage
		Chats []chat
	}
	expect.Decode(t, filepath.Join("testdata", "chats.json"), &f)
	if len(f.Chats) != 4 {
		t.Fatalf("%d conversations", len(f.Chats))
	}
	for _, c := range f.Chats {
		e := load(t, c.Folder, tokenizer.ChatOptions{})
		if form, err := FormOf(e.Tokenizer); err != nil || c.Form != Text && form != c.Form {
			t.Errorf("form %s, %v, want %s", form, err, c.Form)
		}
		c.follow(t, e, string(f.Tools))
	}
}

// TestReleasedTemplates: the same with templates of released models, and which form each has.
func TestReleasedTemplates(t *testing.T) {
	var f struct {
		Sources map[string]string
		Cases   []struct {
			File, Chat string
			Variables  map[string]json.RawMessage
			Text       *string
		}
	}
	expect.Decode(t, need.Path(t, "templates"), &f)
	folders := map[Form]string{Hermes: "qwen2-older", Llama3: "llama3-newer"}
	followed, forms := map[string]int{}, map[Form][]string{}
	for file, source := range f.Sources {
		name := strings.TrimSuffix(file, ".jinja")
		form, err := FormOf(load(t, "llama3-newer", tokenizer.ChatOptions{Template: source}).Tokenizer)
		if err != nil {
			form = "unknown"
		}
		forms[form] = append(forms[form], name)
	}
	for _, c := range f.Cases {
		_, thinks := c.Variables["enable_thinking"]
		_, keeps := c.Variables["keep_past_thinking"]
		form := map[string]Form{"qwen2_5.jinja": Hermes, "qwen3.jinja": Hermes, "qwen3_instruct_2507.jinja": Hermes,
			"qwen3_vl.jinja": Hermes, "llama3_1.jinja": Llama3, "llama3_2.jinja": Llama3}[c.File]
		if form == "" || c.Chat != "tools" && c.Chat != "two calls" || c.Text == nil || thinks || keeps ||
			string(c.Variables["tools"]) == "null" || string(c.Variables["add_generation_prompt"]) == "true" {
			continue
		}
		one := chat{Form: form, Text: *c.Text}
		expect.OK(t, json.Unmarshal(c.Variables["messages"], &one.Messages))
		o := tokenizer.ChatOptions{Template: f.Sources[c.File]}
		if form == Llama3 {
			o.Variables = map[string]any{"bos_token": "<s>"}
		}
		if c.File == "llama3_2.jinja" {
			o.Variables["date_string"] = one.date()
		}
		one.follow(t, load(t, folders[form], o), string(c.Variables["tools"]))
		followed[c.File]++
	}
	if len(followed) != 6 {
		t.Errorf("followed %v, want six templates", followed)
	}
	for form, names := range forms {
		slices.Sort(names)
		t.Logf("%s: %s", form, strings.Join(names, " "))
	}
	for form, names := range map[Form]string{Hermes: "qwen2_5 qwen3 qwen3_instruct_2507 qwen3_vl", Llama3: "llama3_1 llama3_2",
		Text: "phi3 gemma llama3", "unknown": "qwen3_6 gptoss"} {
		for name := range strings.FieldsSeq(names) {
			if !slices.Contains(forms[form], name) {
				t.Errorf("%s is not %s", name, form)
			}
		}
	}
}

// date is what a template has printed.
func (c chat) date() string {
	_, after, _ := strings.Cut(c.Text, "Today Date: ")
	date, _, _ := strings.Cut(after, "\n")
	return date
}

// prompt encodes the conversation so far. Without a chat template it is the messages' texts.
func (w *World) prompt() ([]int32, error) {
	if w.Encoder.Tokenizer.HasTemplate() {
		return w.Encoder.Prompt(data.Text{Messages: w.Messages})
	}
	return w.Encoder.Prompt(data.Text{Plain: data.Text{Messages: w.Messages}.Words() + "\n"})
}

func marshal(t *testing.T, value any) string {
	t.Helper()
	text := expect.Must(json.Marshal(value))(t)
	return string(text)
}
