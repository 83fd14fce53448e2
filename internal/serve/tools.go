package serve

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/rollout/agent"
)

// toolAsk is what a chat with tools has.
type toolAsk struct {
	tools    json.RawMessage // a list of functions; nil: none
	choice   string          // auto or none
	parallel bool            // an answer may have several calls
	form     agent.Form      // in which the model writes calls
}

// call is a tool call in a reply.
type call struct {
	Index    *int     `json:"index,omitempty"` // of a chunk
	ID       string   `json:"id"`
	Type     string   `json:"type"`
	Function function `json:"function"`
}

type function struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"` // JSON
}

// readTools reads a list of functions.
func (a *ask) readTools(raw json.RawMessage) error {
	const want = "a list of functions, {\"type\": \"function\", \"function\": {\"name\": …}}"
	var list []struct {
		Type     string
		Function struct{ Name string }
	}
	if err := value(&list, want)(raw); err != nil {
		return err
	}
	for i, t := range list {
		if t.Type != "function" || t.Function.Name == "" {
			return fmt.Errorf("tool %d is of type %q with the name %q: want %s", i, t.Type, t.Function.Name, want)
		}
	}
	if len(list) > 0 {
		a.tools = raw
	}
	return nil
}

// readChoice reads which tools may be called: an answer is not held to a call.
func (a *ask) readChoice(raw json.RawMessage) error {
	a.choice = ""
	if _ = json.Unmarshal(raw, &a.choice); a.choice != "auto" && a.choice != "none" {
		return fmt.Errorf("%s is not supported: no answer is held to a call; want auto or none", short(raw))
	}
	return nil
}

// readVariables reads variables of the chat template.
func (a *ask) readVariables(raw json.RawMessage) error {
	var all object
	err := value(&all, "an object with variables of the chat template, such as enable_thinking")(raw)
	for name, v := range all {
		if slices.Contains([]string{"messages", "tools", "add_generation_prompt"}, name) {
			return fmt.Errorf("%s: the request decides it: want another variable of the template", name)
		}
		if a.variables == nil {
			a.variables = map[string]any{}
		}
		a.variables[name] = v
	}
	return err
}

// offer puts tools into the prompt of a chat.
func (s *Server) offer(a *ask) (err error) {
	if a.choice == "none" {
		a.tools = nil
	}
	written := slices.ContainsFunc(a.messages, func(m data.Message) bool { return m.Whole != "" })
	if a.tools == nil && !written {
		return nil
	}
	if a.form, err = agent.FormOf(s.encoderOf(a.model).Tokenizer); err != nil {
		return err
	}
	if a.form == agent.Text {
		for i, m := range a.messages {
			if a.messages[i], err = plainTurn(m); err != nil {
				return err
			}
		}
	}
	if a.tools != nil {
		a.messages = agent.Offer(a.form, a.messages, a.tools)
		a.Stop = slices.Concat(a.Stop, a.form.Stop())
		a.KeepSpecial = true // the marks of calls may be special tokens
	}
	return nil
}

// plainTurn is a call or a result for a chat template without tools.
func plainTurn(m data.Message) (data.Message, error) {
	var whole toolMessage
	if m.Whole == "" {
		return m, nil
	}
	if err := json.Unmarshal([]byte(m.Whole), &whole); err != nil {
		return m, err
	}
	if m.Role == "tool" {
		return data.Message{Role: "user", Content: "Observation: " + m.Content}, nil
	}
	text := m.Content
	for i, c := range whole.Calls {
		one, err := agent.Text.Write(nil, "", c.Function.Name, c.Function.Arguments, i+1)
		if err != nil {
			return m, err
		}
		text = strings.TrimPrefix(text+"\n"+one, "\n")
	}
	return data.Message{Role: m.Role, Content: text}, nil
}

// toolMessage is a call or a result as chat templates get it: arguments are objects.
type toolMessage struct {
	Role    string     `json:"role"`
	Content string     `json:"content"`
	Calls   []madeCall `json:"tool_calls,omitempty"`
	ID      string     `json:"tool_call_id,omitempty"`
	Name    string     `json:"name,omitempty"`
}

type madeCall struct {
	ID       string `json:"id,omitempty"`
	Type     string `json:"type"`
	Function struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	} `json:"function"`
}

// readCalls reads the calls of a message. Arguments, which are a text of JSON in the protocol, become what they are.
func (t *toolMessage) readCalls(raw json.RawMessage) error {
	if err := value(&t.Calls, "a list of calls")(raw); err != nil {
		return err
	}
	for i := range t.Calls {
		f, text := &t.Calls[i].Function, ""
		if json.Unmarshal(f.Arguments, &text) == nil {
			f.Arguments = json.RawMessage(strings.TrimSpace(text))
		}
		var arguments map[string]any
		if len(f.Arguments) == 0 {
			f.Arguments = json.RawMessage("{}")
		}
		if json.Unmarshal(f.Arguments, &arguments) != nil || arguments == nil {
			return fmt.Errorf("the arguments of call %d are %s: want a JSON object, as a text", i, short(f.Arguments))
		}
		if f.Name == "" {
			return fmt.Errorf("call %d has no function.name", i)
		}
		t.Calls[i].Type = "function"
	}
	return nil
}

// message is the message for a chat template.
func (t *toolMessage) message() (m data.Message, err error) {
	m = data.Message{Role: t.Role, Content: t.Content}
	switch {
	case t.Role == "tool":
	case t.ID != "":
		return m, errors.New("tool_call_id: only a message with the role tool has one")
	case t.Calls != nil && t.Role != "assistant":
		return m, errors.New("tool_calls: only a message with the role assistant has them")
	case len(t.Calls) == 0:
		return m, nil
	}
	whole, err := data.Marshal(t)
	m.Whole = string(whole)
	return m, err
}

// calls reads the calls in an answer; content is what is before them.
func (t *toolAsk) calls(text string) (content string, calls []call) {
	if t.tools == nil {
		return text, nil
	}
	content, made, arguments := t.form.Parse(text)
	for i, c := range made {
		if i > 0 && !t.parallel {
			break
		}
		calls = append(calls, call{ID: rand.Text()[:9], Type: "function", // Mistral's templates want nine letters
			Function: function{c.Name, string(arguments[i])}})
	}
	return content, calls
}

// spoken is the part of a choice's answer that a stream with tools has given.
type spoken struct {
	text string // all that was drawn
	sent int    // of it, given as content
}

// more gives the content that is new, and at the end the calls.
func (t *toolAsk) more(s *spoken, piece string, ended bool) (content string, calls []call) {
	if t.tools == nil {
		return piece, nil
	}
	s.text += piece
	to := t.form.Content(s.text)
	if ended {
		content, calls = t.calls(s.text)
		if calls == nil {
			return s.text[s.sent:], nil
		}
		from := s.sent - strings.Index(s.text, content) // which has no white space around it
		return content[min(max(from, 0), len(content)):], calls
	}
	if to > s.sent {
		content, s.sent = s.text[s.sent:to], to
	}
	return content, nil
}
