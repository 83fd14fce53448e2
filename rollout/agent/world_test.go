package agent

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/gomlx/compute"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/tokenizer"
)

const lookTools = `[{"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": ` +
	`{"type": "object", "properties": {"at": {"type": "string", "description": "What?"}}}}}]`

var asks = []data.Message{{Role: "user", Content: "What is there?"}}

// callOf is a call as models write it, by form.
var callOf = map[Form]string{
	Hermes:  "<tool_call>\n{\"name\": \"look\", \"arguments\": {\"at\": \"x\"}}\n</tool_call>",
	Llama3:  `{"name": "look", "parameters": {"at": "x"}}`,
	Mistral: `[TOOL_CALLS] [{"name": "look", "arguments": {"at": "x"}}]`,
	Text:    "Action: look\nAction Input: {\"at\": \"x\"}\n",
}

var folderOf = map[Form]string{Hermes: "qwen2-older", Llama3: "llama3-newer", Mistral: "mistral-newer", Text: "llama3-newer"}

// acting is a world whose model calls a tool with every message, whatever it has drawn.
type acting struct{ *World }

func (a acting) Reply(m rollout.Completion) ([]int32, error) {
	m.Text = callOf[a.Form]
	return a.World.Reply(m)
}

// sampler is a sampler of a tiny model that has a tokenizer's tokens.
func sampler(t *testing.T, e *batch.Encoder) (*rollout.Cached, *model.Config) {
	t.Helper()
	config, engine := testkit.Config(t, "llama"), backendtest.Go(t)
	config.VocabSize, config.MaxPositions = e.Tokenizer.Size(), 1024
	weights := expect.Must(rollout.Upload(engine, model.Init(config, 7), model.GraphOptions{}))(t)
	s := rollout.NewCached(engine, config, func() []compute.Buffer { return weights }, rollout.Options{Decoder: e.Tokenizer})
	t.Cleanup(func() {
		s.Close()
		backend.FinalizeAll(weights...)
	})
	return s, config
}

// TestEpisodes: what the environment says is not drawn, and drawn tokens have the log-probs of one pass over the whole.
func TestEpisodes(t *testing.T) {
	for form, folder := range folderOf {
		e := load(t, folder, tokenizer.ChatOptions{})
		s, config := sampler(t, e)
		var stops []int32
		for id := range int32(config.VocabSize) {
			if id%3 == 0 {
				stops = append(stops, id)
			}
		}
		var requests []rollout.Request
		for i := range 4 {
			open := func() rollout.World {
				env := &recorder{tools: lookTools, results: []string{"a tree", "a house"}, over: 2 + i%2}
				return acting{&World{Encoder: e, Form: form, Environment: env, Messages: Prompt(form, asks, env), Name: "x"}}
			}
			prompt := expect.Must(open().(acting).prompt())(t)
			requests = append(requests, rollout.Request{Sampling: rollout.Sampling{MaxNew: 40, Temperature: 1}, Prompt: prompt,
				Seed: uint64(i), StopTokens: stops, Open: open})
		}
		all, err := rollout.Episodes{Sampler: s, Turns: 4, Tokens: config.MaxPositions}.Sample(t.Context(), requests)
		expect.OK(t, err)
		for i, c := range all {
			whole := append(slices.Clone(requests[i].Prompt), c.Tokens...)
			echoes := expect.Must(s.Echo([][]int32{whole}))(t)
			if c.Messages != 2+i%2 || c.Reason != rollout.EOS || len(c.World.(acting).Messages) != 1+2*c.Messages {
				t.Fatalf("%s, %d: %d messages, %s", form, i, c.Messages, c.Reason)
			}
			var read []int32
			for k, drawn := range c.Drawn {
				d := math.Abs(float64(c.Logps[k] - echoes[0].Logps[len(requests[i].Prompt)+k-1]))
				if drawn && d > 2e-5 || !drawn && c.Logps[k] != 0 {
					t.Errorf("%s, %d, token %d: log-prob %v, off by %v, drawn %v", form, i, k, c.Logps[k], d, drawn)
				}
				if !drawn {
					read = append(read, c.Tokens[k])
				}
			}
			if text := e.Tokenizer.Decode(read, false); strings.Count(text, "a tree") != 1 ||
				strings.Count(text, "a house") != i%2 {
				t.Errorf("%s, %d: the model reads %q", form, i, text)
			}
		}
	}
}

// newer is a template in the form of Mistral's newer models.
const newer = `{{ bos_token }}{% if tools %}[AVAILABLE_TOOLS]{{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif %}` +
	`{% for m in messages %}{% if m.role == 'user' %}[INST]{{ m.content }}[/INST]{% elif m.role == 'tool' %}` +
	`[TOOL_RESULTS]{{ m.content }}[/TOOL_RESULTS]{% else %}{{ m.content }}{% for c in m.tool_calls or [] %}` +
	`[TOOL_CALLS]{{ c.function.name }}[ARGS]{{ c.function.arguments | tojson }}{% endfor %}{{ eos_token }}{% endif %}{% endfor %}`

// TestReplies: what a model reads after each kind of message.
func TestReplies(t *testing.T) {
	const eos, cut = rollout.EOS, rollout.StopString
	broken := "<tool_call>{look}</tool_call>"
	fault := "No tool was called: the call is no JSON object; want "
	user := func(text string) string { return "\n<|im_start|>user\n" + text + "<|im_end|>\n<|im_start|>assistant\n" }
	llama := func(role, text string) string {
		return "<|start_header_id|>" + role + "<|end_header_id|>\n\n" + text + "<|eot_id|>"
	}
	two := callOf[Hermes] + callOf[Hermes]
	for _, c := range []struct {
		form               Form
		folder, template   string
		text, reason, want string
	}{
		{Hermes, "qwen2-older", "", callOf[Hermes], eos, user("<tool_response>\nA\n</tool_response>")},
		{Hermes, "qwen2-older", "", "<think>\nx\n</think>\n\n" + callOf[Hermes], eos, user("<tool_response>\nA\n</tool_response>")},
		{Hermes, "qwen2-older", "", callOf[Hermes], cut, "<|im_end|>" + user("<tool_response>\nA\n</tool_response>")},
		{Hermes, "qwen2-older", "", two, eos,
			user("<tool_response>\nA\n</tool_response>\n<tool_response>\nB\n</tool_response>")},
		{Hermes, "qwen2-older", "", "Hello.", eos, user("A")},
		{Hermes, "qwen2-older", "", broken, eos, user("<tool_response>\n" + fault + accepted[Hermes] + "\n</tool_response>")},
		{Llama3, "llama3-newer", "", callOf[Llama3], eos, llama("ipython", "A") + llama("assistant", "")},
		{Llama3, "llama3-newer", "", callOf[Llama3] + ";" + callOf[Llama3], eos, // which the template does not take as calls
			llama("ipython", "A") + llama("ipython", "B") + llama("assistant", "")},
		{Llama3, "llama3-newer", "", "Hello.", eos, llama("user", "A") + llama("assistant", "")},
		{Mistral, "mistral-newer", "", callOf[Mistral], eos, `[TOOL_RESULTS] {"content": A, "call_id": "call00001"}[/TOOL_RESULTS]`},
		{Mistral, "mistral-newer", "", "[TOOL_CALLS] [{", eos,
			`[TOOL_RESULTS] {"content": ` + fault + accepted[Mistral] + `, "call_id": "call00001"}[/TOOL_RESULTS]`},
		{Mistral, "mistral-newer", newer, "[TOOL_CALLS]look[ARGS]{\"at\": \"x\"}[TOOL_CALLS]look[ARGS]{}", eos,
			"[TOOL_RESULTS]A[/TOOL_RESULTS][TOOL_RESULTS]B[/TOOL_RESULTS]"},
		{Text, "qwen2-older", "", callOf[Text], cut, "<|im_end|>" + user("Observation: A")},
		{Text, "qwen2-older", "", callOf[Text] + callOf[Text], eos, user("Observation: A\nObservation: B")},
		{Text, "qwen2-older", "", "Final Answer: x", eos, user("A")},
		{Text, "", "", callOf[Text], cut, " A\n"},
		{Text, "", "", callOf[Text], eos, "\nObservation: A\n"},
		{Text, "", "", "Hello.", eos, "\nA\n"},
	} {
		var e *batch.Encoder
		if c.folder != "" {
			e = load(t, c.folder, tokenizer.ChatOptions{Template: c.template})
		} else { // without a template
			e = bare(t)
		}
		env := &recorder{tools: lookTools, results: []string{"A", "B"}}
		w := &World{Encoder: e, Form: c.form, Environment: env, Messages: Prompt(c.form, asks, env), Name: "x"}
		if form, err := FormOf(e.Tokenizer); err != nil || c.form != Text && form != c.form {
			t.Errorf("form %s, %v, want %s", form, err, c.form)
		}
		if _, err := w.prompt(); err != nil {
			t.Error(err)
		}
		said := c.text
		if c.reason == eos && c.folder != "" {
			end, _ := w.end()
			said += end
		}
		drawn := expect.Must(e.Tokenizer.Encode(said, false))(t)
		reply, err := w.Reply(rollout.Completion{Tokens: drawn, Text: c.text, Reason: c.reason})
		got := strings.TrimSuffix(e.Tokenizer.Decode(reply, false), "<|eot_id|>")
		if want := strings.TrimSuffix(c.want, "<|eot_id|>"); err != nil || got != want {
			t.Errorf("%s, %q, %s:\n got  %q, %v\n want %q", c.form, c.text, c.reason, got, err, want)
		}
		if strings.Contains(c.text, "</think>") && !strings.Contains(w.Messages[1].Content, "</think>") {
			t.Errorf("the thoughts are not in %q", w.Messages[1].Content)
		}
	}
}

// TestSpecialTokensInMessages: the marks of calls may be special tokens, which the text of a message has not; what the
// user hears has none.
func TestSpecialTokensInMessages(t *testing.T) {
	for _, c := range []struct{ text, raw, want string }{
		{strings.TrimPrefix(callOf[Mistral], "[TOOL_CALLS]"), callOf[Mistral], `look{"at":"x"}`},
		{"Hello.", "[INST]Hello.", "Hello."},
	} {
		env := &recorder{tools: lookTools, results: []string{"A"}, over: 1}
		w := &World{Form: Mistral, Environment: env, Messages: asks, Name: "x"}
		_, err := w.Reply(rollout.Completion{Text: c.text, Raw: c.raw, Reason: rollout.EOS})
		if err != nil || !slices.Equal(env.heard, []string{c.want}) {
			t.Errorf("%q: the environment hears %q, %v", c.raw, env.heard, err)
		}
	}
}

// bare is a tokenizer without a chat template.
func bare(t *testing.T) *batch.Encoder {
	t.Helper()
	e := load(t, "qwen2-older", tokenizer.ChatOptions{})
	config := strings.Replace(string(e.Tokenizer.File("tokenizer_config.json")), `"chat_template"`, `"no_template"`, 1)
	tok, err := tokenizer.LoadFS(fstest.MapFS{"tokenizer.json": {Data: e.Tokenizer.File("tokenizer.json")},
		"tokenizer_config.json": {Data: []byte(config)}}, "bare")
	if err != nil || tok.HasTemplate() {
		t.Fatal(err)
	}
	return &batch.Encoder{Tokenizer: tok}
}

// TestFaults: an environment that fails ends the run with a line that has the item and the turn; so does a template
// that cannot write results.
func TestFaults(t *testing.T) {
	e := load(t, "qwen2-older", tokenizer.ChatOptions{})
	env := &recorder{tools: lookTools, results: []string{"A"}, fails: errors.New("the mailbox is shut")}
	w := &World{Encoder: e, Form: Hermes, Environment: env, Messages: Prompt(Hermes, asks, env), Name: "items.jsonl:3"}
	_, err := w.Reply(rollout.Completion{Text: callOf[Hermes]})
	expect.Error(t, err, "items.jsonl:3, message 1: the environment fails: the mailbox is shut")
	_, _, _, err = Conversation{Messages: asks, Name: "items.jsonl:3", Form: Text,
		Open: func() Environment { return env }}.Follow([]string{"Hello."})
	expect.Error(t, err, "items.jsonl:3, message 1: the environment fails: the mailbox is shut")

	lost := load(t, "qwen2-older", tokenizer.ChatOptions{Template: "{% if tools %}t{% endif %}{{ messages[0].content }}"})
	w = &World{Encoder: lost, Form: Hermes, Environment: &recorder{results: []string{"A"}}, Messages: asks, Name: "x"}
	_, err = w.Reply(rollout.Completion{Text: callOf[Hermes]})
	expect.Error(t, err, "x, message 1: the chat template does not write what a model says")
	_, err = FormOf(lost.Tokenizer)
	expect.Error(t, err, `the chat template writes a tool call as "": want a template with calls of the form`)
}

// scripted answers turn after turn, each question alike, and then with the last answer again.
type scripted []string

func (s scripted) Answer(_ context.Context, questions []ask.Question) ([][]ask.Answer, error) {
	var all [][]ask.Answer
	for _, q := range questions {
		turn := 0
		for _, m := range q.Prompt.Messages {
			if m.Role == "assistant" {
				turn++
			}
		}
		all = append(all, []ask.Answer{{Completion: rollout.Completion{Text: s[min(turn, len(s)-1)], Reason: rollout.EOS}}})
	}
	return all, nil
}

// TestPrompt: tools are the template's, or described.
func TestPrompt(t *testing.T) {
	env := &recorder{tools: lookTools}
	if got := Prompt(Hermes, asks, env); got[0].Tools != lookTools || got[0].Content != asks[0].Content || asks[0].Tools != "" {
		t.Errorf("%+v", got)
	}
	const described = "You have these tools:\n- look: Looks. Input: {\"at\": {\"type\": \"string\", \"description\": \"What?\"}}\n"
	for _, role := range []string{"system", "user"} {
		m := Prompt(Text, []data.Message{{Role: role, Content: "Hi."}}, env)[0]
		if !strings.Contains(m.Content, described) || !strings.Contains(m.Content, "Action Input: {") || m.Tools != "" ||
			strings.HasPrefix(m.Content, "Hi.") != (role == "system") || strings.HasSuffix(m.Content, "Hi.") != (role == "user") {
			t.Errorf("%+v", m)
		}
	}
	if got := Prompt(Text, nil, env); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}
