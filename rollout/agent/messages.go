package agent

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/tokenizer"
)

// exchange is a message of the model and what it led to.
type exchange struct {
	said
	form  Form
	ids   []string // of the calls that were made
	heard []string // their results; without calls what the user says
}

// writing is how an exchange is written for a chat template.
type writing struct {
	verbatim bool // the message as the model wrote it; otherwise calls are in tool_calls
	probing  bool // with the probe in the place of the message, or in its last call
}

// probe is a text that no template rewrites.
const probe = "posttrain-probe"

// message is a message as templates and servers know it.
type message struct {
	Role    string     `json:"role"`
	Content string     `json:"content"`
	Calls   []toolCall `json:"tool_calls,omitempty"`
	Name    string     `json:"name,omitempty"`
	ID      string     `json:"tool_call_id,omitempty"`
}

type toolCall struct {
	ID       string   `json:"id"`
	Type     string   `json:"type"`
	Function function `json:"function"`
}

type function struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

func (m message) whole() data.Message {
	text, _ := data.Marshal(m) // texts, and arguments that were read
	return data.Message{Role: m.Role, Content: m.Content, Whole: string(text)}
}

// messages are the messages of an exchange: the model's, and the results or what the user says.
func (x exchange) messages(how writing) []data.Message {
	model := data.Message{Role: "assistant", Content: x.text}
	if how.probing {
		model.Content = probe
	}
	switch {
	case len(x.calls) == 0:
		return []data.Message{model, {Role: "user", Content: x.heard[0]}}
	case x.form == Text:
		return []data.Message{model, {Role: "user", Content: x.observations()}}
	case !how.verbatim:
		model = x.structured(how.probing).whole()
	}
	all := []data.Message{model}
	for i, result := range x.heard {
		all = append(all, message{Role: "tool", Content: result, Name: x.calls[i].toolName(), ID: x.ids[i]}.whole())
	}
	return all
}

// callID is the id of a conversation's n-th call: nine letters and digits, as Mistral's templates want it.
func callID(n int) string { return fmt.Sprintf("call%05d", n) }

// structured is the model's message with its calls apart.
func (x exchange) structured(probing bool) message {
	m := message{Role: "assistant", Content: x.before}
	for i, id := range x.ids {
		f := function{x.calls[i].toolName(), x.calls[i].rawArguments}
		if probing && i == len(x.ids)-1 {
			f.Arguments = json.RawMessage(`{"probe": "` + probe + `"}`)
		}
		m.Calls = append(m.Calls, toolCall{id, "function", f})
	}
	return m
}

// toolName is the tool's, or a word in its place.
func (c made) toolName() string {
	if strings.TrimSpace(c.Name) == "" {
		return "invalid"
	}
	return c.Name
}

// observations are the results in PrivacyLens's form.
func (x exchange) observations() string {
	return observationMark + " " + strings.Join(x.heard, "\n"+observationMark+" ")
}

// plain is what comes behind a message where there is no chat template; stopped: the message ends with the mark of an
// observation.
func (x exchange) plain(stopped bool) string {
	switch {
	case len(x.calls) == 0:
		return "\n" + x.heard[0] + "\n"
	case stopped:
		return strings.TrimPrefix(x.observations(), observationMark) + "\n"
	}
	return "\n" + x.observations() + "\n"
}

// greeting is the beginning of a conversation with a tool.
var greeting = []data.Message{{Role: "user", Content: "Hello", Tools: `[{"type": "function", "function": {"name": ` +
	`"look", "description": "Looks.", "parameters": {"type": "object", "properties": {"at": {"type": "string", ` +
	`"description": "What?"}}}}}]`}}

// FormOf is the form in which a chat template writes tool calls: that in which they are read again. It is Text where
// there is no template, or one that leaves out tools.
func FormOf(t *tokenizer.Tokenizer) (Form, error) {
	if !t.HasTemplate() {
		return Text, nil
	}
	e := &batch.Encoder{Tokenizer: t}
	without, err := e.Render([]data.Message{{Role: "user", Content: "Hello"}}, true)
	if err != nil {
		return "", err
	}
	prompt, err := e.Render(greeting, true)
	if err != nil || prompt == without {
		return Text, err
	}
	text, err := callText(e, "look", json.RawMessage(`{"at": "posttrain"}`), 1)
	if err != nil {
		return "", err
	}
	for _, f := range []Form{Hermes, Mistral, Llama3} {
		s := f.read(text)
		if len(s.calls) == 1 && s.calls[0].Name == "look" && s.calls[0].Arguments["at"] == "posttrain" {
			return f, nil
		}
	}
	return "", fmt.Errorf("the chat template writes a tool call as %.80q: want a template with calls of the form %s, %s or "+
		"%s, or one without tools, for the form %s", text, Hermes, Llama3, Mistral, Text)
}

// callText is the n-th call of a conversation as the chat template writes it behind a prompt.
func callText(e *batch.Encoder, tool string, arguments json.RawMessage, n int) (string, error) {
	x := exchange{said: said{calls: []made{newCall(tool, arguments)}}, ids: []string{callID(n)}}
	prompt, err := e.Render(greeting, true)
	if err != nil {
		return "", err
	}
	text, err := e.Render(slices.Concat(greeting, []data.Message{x.structured(false).whole()}), false)
	return strings.TrimPrefix(text, prompt), err
}

// Write is a message of a model that thinks and makes its n-th call: in the form Text, or as the chat template writes
// a call.
func (f Form) Write(t *tokenizer.Tokenizer, think, tool string, arguments json.RawMessage, n int) (string, error) {
	text, lead := fmt.Sprintf("%s %s\n%s %s", actionMark, tool, inputMark, arguments), ""
	if think != "" {
		lead = think + "\n"
	}
	if f == Text {
		return lead + text, nil
	}
	w := World{Encoder: &batch.Encoder{Tokenizer: t}}
	text, err := callText(w.Encoder, tool, arguments, n)
	if err != nil {
		return "", err
	}
	end, err := w.tail(slices.Concat(greeting, []data.Message{{Role: "assistant", Content: probe}}), false)
	if err != nil {
		return "", err
	}
	text, ends := strings.CutSuffix(text, end)
	if !ends {
		return "", fmt.Errorf("the chat template does not end a message with tool calls as other messages (%q)", end)
	}
	return lead + strings.TrimSpace(withoutThoughts(text)), nil
}

// Stop are the texts that end a message in this form.
func (f Form) Stop() []string {
	if f == Text {
		return []string{observationMark}
	}
	return nil
}

// Prompt adds an environment's tools to the first messages of a conversation: for the template, or as text where the
// form is Text. An environment without tools leaves the messages as they are.
func Prompt(form Form, messages []data.Message, env Environment) []data.Message {
	return Offer(form, messages, env.Tools())
}

// Offer adds tools, a JSON list, to the first messages of a conversation.
func Offer(form Form, messages []data.Message, tools json.RawMessage) []data.Message {
	messages = slices.Clone(messages)
	if len(messages) == 0 || len(tools) == 0 {
		return messages
	}
	switch first := &messages[0]; {
	case form != Text:
		first.Tools = string(tools)
	case first.Role == "system":
		first.Content += "\n\n" + describe(tools)
	default: // not every template takes a system message
		first.Content = describe(tools) + "\n\n" + first.Content
	}
	return messages
}

// describe says in words what tools there are, and how they are used.
func describe(tools json.RawMessage) string {
	var list []struct {
		Function struct {
			Name, Description string
			Parameters        struct{ Properties json.RawMessage }
		}
	}
	text := "You have these tools:\n"
	if json.Unmarshal(tools, &list) != nil {
		text += string(tools) + "\n"
	}
	for _, t := range list {
		f := t.Function
		text += fmt.Sprintf("- %s: %s Input: %s\n", f.Name, f.Description, cmp.Or(string(f.Parameters.Properties), "{}"))
	}
	return text + "To use one, end your message with two lines:\nAction: TOOL\nAction Input: {\"NAME\": \"VALUE\"}\n" +
		"The result follows as " + observationMark + " A message without an action goes to the user."
}
