package agent

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/remote"
	"github.com/posttrain/posttrain/tokenizer"
)

// asked is a conversation of a form. Each time that it is followed the environment begins again.
func asked(form Form, env *recorder) Conversation {
	return Conversation{Messages: Prompt(form, asks, env), Name: "x", Form: form, Open: func() Environment {
		env.heard, env.calls = nil, nil
		return env
	}}
}

// hold asks a chat for messages until the environment ends the conversation, or it has turns of them.
func hold(t *testing.T, chat ask.Model, c Conversation, turns int) (messages []data.Message, said []string, over bool) {
	t.Helper()
	for messages = c.Messages; len(said) < turns && !over; {
		answers := expect.Must(chat.Answer(t.Context(), []ask.Question{{Prompt: data.Text{Messages: messages},
			Sampling: rollout.Sampling{MaxNew: 5, Temperature: 1, Stop: c.Form.Stop()}}}))(t)
		said = append(said, answers[0][0].Text)
		var err error
		messages, _, over, err = c.Follow(said)
		expect.OK(t, err)
	}
	return messages, said, over
}

func roles(messages []data.Message) string {
	var all []string
	for _, m := range messages {
		all = append(all, m.Role)
	}
	return strings.Join(all, " ")
}

// TestFollow: a loop goes on until nobody asks, and the environment ends another conversation. A bad call has a line as
// its result.
func TestFollow(t *testing.T) {
	chat := scripted{callOf[Hermes], "<tool_call>{</tool_call>", callOf[Hermes]}
	messages, said, over := hold(t, chat, asked(Hermes, &recorder{tools: lookTools, results: []string{"no such place"}}), 5)
	if over || len(said) != 5 || len(messages) != 11 {
		t.Errorf("%v, %d said, %d messages", over, len(said), len(messages))
	}
	messages, said, over = hold(t, chat, asked(Hermes, &recorder{tools: lookTools, results: []string{"a tree"}, over: 2}), 5)
	if !over || len(said) != 3 || roles(messages) != "user assistant tool assistant tool assistant tool" {
		t.Fatalf("%v, %d said, %s", over, len(said), roles(messages))
	}
	// calls behind the one that ends it are made, too
	env := &recorder{tools: lookTools, results: []string{"a tree"}, over: 1}
	messages, _, over = hold(t, scripted{callOf[Hermes] + callOf[Hermes]}, asked(Hermes, env), 5)
	if !over || len(env.calls) != 2 || roles(messages) != "user assistant tool tool" {
		t.Errorf("%v, %d calls, %s: want both", over, len(env.calls), roles(messages))
	}
	messages, _, _ = hold(t, chat, asked(Hermes, &recorder{tools: lookTools, results: []string{"a tree"}, over: 2}), 5)
	if want := "No tool was called: the call is no JSON object; want " + accepted[Hermes]; messages[4].Content != want {
		t.Errorf("%+v, want %s", messages[4], want)
	}
}

// TestFollowLocally: a model in this process reads its calls and their results in its template, also two calls in a
// message, which the template does not take as calls.
func TestFollowLocally(t *testing.T) {
	e := load(t, "llama3-newer", tokenizer.ChatOptions{})
	s, _ := sampler(t, e)
	local := &ask.Local{Sampler: s, Encoder: e}
	c := asked(Llama3, &recorder{tools: lookTools, results: []string{"a tree that is rather tall"}})
	c.Encoder = e
	if messages, said, over := hold(t, local, c, 3); over || len(said) != 3 || len(messages) != 7 {
		t.Errorf("%v, %d said, %s", over, len(said), roles(messages))
	}
	c = asked(Llama3, &recorder{tools: lookTools, results: []string{"A", "B", "C"}, over: 3})
	c.Encoder = e
	messages, _, _ := hold(t, scripted{callOf[Llama3] + callOf[Llama3], "{", "So."}, c, 9)
	if roles(messages) != "user assistant tool tool assistant tool assistant user" {
		t.Fatalf("%s", roles(messages))
	}
	if m := messages[1]; m.Content != callOf[Llama3]+callOf[Llama3] || m.Whole != "" {
		t.Errorf("%+v", m)
	}
}

// TestFollowWithAServer: a server that has tools gets them and gives calls apart; one that has none reads and writes
// text.
func TestFollowWithAServer(t *testing.T) {
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
	chat, err := remote.New(remote.Options{Server: remote.Server{BaseURL: server.URL}, Model: "m", Retries: -1})
	expect.OK(t, err)
	for _, form := range []Form{Hermes, Text} {
		last = sent{}
		env := &recorder{tools: lookTools, results: []string{"a tree"}, over: 2}
		_, said, over := hold(t, chat, asked(form, env), 5)
		if want := []string{`look{"at":"x"}`, map[Form]string{Hermes: "A tree.", Text: "a tree"}[form]}; !slices.Equal(env.heard, want) {
			t.Errorf("%s: heard %q, want %q", form, env.heard, want)
		}
		if !over || len(said) != 2 {
			t.Errorf("%s: %v, said %q", form, over, said)
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
