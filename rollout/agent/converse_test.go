package agent

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/tokenizer"
)

// asked is a conversation of a form.
func asked(form Form, env *recorder) Conversation {
	return Conversation{Conversation: rollout.Conversation{Messages: Prompt(form, ask, env)}, Name: "x", Form: form, Environment: env}
}

func roles(messages []data.Message) string {
	var all []string
	for _, m := range messages {
		all = append(all, m.Role)
	}
	return strings.Join(all, " ")
}

// TestEndsOfConversations: a loop ends at the limit of turns, a long conversation at that of tokens, another where the
// environment ends it.
func TestEndsOfConversations(t *testing.T) {
	loops := &recorder{tools: lookTools, results: []string{"no such place"}}
	ends := &recorder{tools: lookTools, results: []string{"a tree"}, over: 2}
	chat := scripted{callOf[Hermes], "<tool_call>{</tool_call>", callOf[Hermes]}
	got, err := Converse(t.Context(), chat, []Conversation{asked(Hermes, loops), asked(Hermes, ends)}, 5)
	if err != nil {
		t.Fatal(err)
	}
	if d := got[0]; d.Reason != rollout.Turns || d.Turns != 5 || d.Tokens != 10 || len(loops.heard) != 4 || len(d.Messages) != 11 {
		t.Errorf("%+v, %v", d, loops.heard)
	}
	if d := got[1]; d.Reason != rollout.EOS || d.Turns != 3 || roles(d.Messages) != "user assistant tool assistant tool assistant tool" {
		t.Errorf("%+v, %v", d, ends.heard)
	}
	fault := got[1].Messages[4]
	if want := "No tool was called: the call is no JSON object; want " + accepted[Hermes]; fault.Content != want {
		t.Errorf("%+v, want %s", fault, want)
	}
}

// TestConverseLocally: a model in this process reads its calls and their results in its template, and its conversation
// ends where its prompt is too long.
func TestConverseLocally(t *testing.T) {
	e := load(t, "llama3-newer", tokenizer.ChatOptions{})
	s, _ := sampler(t, e)
	env := &recorder{tools: lookTools, results: []string{"a tree that is rather tall"}}
	c := asked(Llama3, env)
	c.MaxNew, c.Tokens, c.Temperature = 5, 230, 1
	got, err := Converse(t.Context(), &rollout.Local{Sampler: s, Encoder: e}, []Conversation{c}, 50)
	if err != nil || got[0].Reason != rollout.Length || got[0].Turns == 50 || got[0].Turns != 1 && len(env.heard) == 0 {
		t.Errorf("%+v, %v", got, err)
	}
	// two calls in a message, which the template does not take as calls
	local := playing{&rollout.Local{Sampler: s, Encoder: e}, scripted{callOf[Llama3] + callOf[Llama3], "{", "So."}}
	env = &recorder{tools: lookTools, results: []string{"A", "B", "C"}, over: 3}
	got, err = Converse(t.Context(), local, []Conversation{asked(Llama3, env)}, 9)
	if err != nil || roles(got[0].Messages) != "user assistant tool tool assistant tool assistant user" {
		t.Fatalf("%+v, %v", got, err)
	}
	if m := got[0].Messages[1]; m.Content != callOf[Llama3]+callOf[Llama3] || m.Whole != "" {
		t.Errorf("%+v", m)
	}
}

// playing has a model's prompts, and answers of its own.
type playing struct {
	*rollout.Local
	scripted
}

func (p playing) Answer(ctx context.Context, cs []rollout.Conversation) ([][]rollout.Answer, error) {
	return p.scripted.Answer(ctx, cs)
}

// TestConverseWithAServer: a server that has tools gets them and gives calls apart; one that has none reads and writes
// text.
func TestConverseWithAServer(t *testing.T) {
	type sent struct {
		Messages []struct {
			Role, Content string
			ToolCallID    string `json:"tool_call_id"`
			ToolCalls     []struct {
				ID       string
				Function struct{ Name, Arguments string }
			} `json:"tool_calls"`
		}
		Tools json.RawMessage
		Stop  []string
	}
	native := []string{`{"content": null, "tool_calls": [{"id": "a", "type": "function", "function": {"name": "look", ` +
		`"arguments": "{\"at\": \"x\"}"}}, {"id": "b", "function": {"name": "look", "arguments": "{at"}}]}`, `{"content": "A tree."}`}
	var last sent
	server := testkit.StartJudge(t, testkit.JudgeOptions{Act: func(request []byte) string {
		if err := json.Unmarshal(request, &last); err != nil {
			t.Error(err)
		}
		if string(last.Tools) == "" {
			if len(last.Messages) == 1 {
				return `{"content": "Action: look\nAction Input: {\"at\": \"x\"}\n"}`
			}
			return `{"content": "Final Answer: a tree"}`
		}
		return native[min(len(last.Messages)/2, 1)]
	}})
	chat, err := rollout.NewRemote(rollout.RemoteOptions{BaseURL: server.URL, Model: "m", Retries: -1})
	if err != nil {
		t.Fatal(err)
	}
	for _, form := range []Form{Hermes, Text} {
		last = sent{}
		env := &recorder{tools: lookTools, results: []string{"a tree"}, over: 2}
		got, err := Converse(t.Context(), chat, []Conversation{asked(form, env)}, 5)
		if err != nil {
			t.Fatal(err)
		}
		if want := []string{`look{"at":"x"}`, map[Form]string{Hermes: "A tree.", Text: "a tree"}[form]}; !slices.Equal(env.heard, want) {
			t.Errorf("%s: heard %q, want %q", form, env.heard, want)
		}
		if d := got[0]; d.Reason != rollout.EOS || d.Turns != 2 {
			t.Errorf("%s: %+v", form, d)
		}
		if form == Text {
			if m := last.Messages; len(m) != 3 || m[2].Content != "Observation: a tree" || m[1].ToolCalls != nil ||
				!slices.Equal(last.Stop, []string{"Observation:"}) {
				t.Errorf("%+v", last)
			}
			continue
		}
		m := last.Messages
		if len(m) != 4 || !json.Valid(last.Tools) || len(m[1].ToolCalls) != 2 || last.Stop != nil {
			t.Fatalf("%+v", last)
		}
		if calls := m[1].ToolCalls; calls[0].Function.Arguments != `{"at":"x"}` || calls[1].Function.Arguments != "{}" ||
			m[2].Content != "a tree" || m[2].ToolCallID != calls[0].ID || m[3].ToolCallID != calls[1].ID ||
			!strings.HasPrefix(m[3].Content, `No tool was called: the arguments of "look" are no JSON object`) {
			t.Errorf("%+v", last)
		}
	}
}
