package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/posttrain/posttrain/data"
)

// roles maps roles of messages to roles of chat templates. OpenAI also calls the system "developer".
var roles = map[string]string{"system": "system", "developer": "system", "user": "user", "assistant": "assistant",
	"tool": "tool"}

// neutralInMessage lists the other fields of a message with values that mean nothing. Clients send back what they got,
// such as "refusal": null.
var neutralInMessage = map[string][]any{
	"refusal":           {""},
	"audio":             {},
	"annotations":       {[]any{}},
	"function_call":     {},
	"reasoning_content": {""},
}

func (a *ask) readMessages(raw json.RawMessage) error {
	var list []object
	if err := value(&list, "a list of messages, objects with role and content")(raw); err != nil {
		return err
	}
	for i, fields := range list {
		m, err := readMessage(fields)
		if err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
		a.messages = append(a.messages, m)
	}
	return nil
}

func readMessage(fields object) (m data.Message, err error) {
	var t toolMessage
	content := func(json.RawMessage) error { return nil } // read below, since it must be there
	readers := map[string]reader{"role": value(&t.Role, "a text"), "content": content, "tool_calls": t.readCalls,
		"tool_call_id": value(&t.ID, "a text"), "name": value(&t.Name, "a text")}
	if name, err := fields.read(readers, neutralInMessage, "want role and content"); err != nil {
		return m, fmt.Errorf("%s: %w", name, err)
	}
	if !(len(t.Calls) > 0 && !fields.has("content")) { // beside calls it may be null
		if t.Content, err = readContent(fields["content"]); err != nil {
			return m, fmt.Errorf("content: %w", err)
		}
	}
	role, ok := roles[t.Role]
	switch {
	case !ok:
		return m, fmt.Errorf("role: found %q: want system, user, assistant or tool", t.Role)
	case t.Name != "" && role != "tool":
		return m, fmt.Errorf("name: %s is not supported: leave it out", short([]byte(t.Name)))
	}
	t.Role = role
	return t.message()
}

// readContent reads a text, or a list of text parts, which it joins as lines.
func readContent(raw json.RawMessage) (string, error) {
	if raw == nil {
		return "", errors.New("missing: want a text")
	}
	var text string
	if string(raw) != "null" && json.Unmarshal(raw, &text) == nil {
		return text, nil
	}
	var parts []struct {
		Type string
		Text *string
	}
	const want = "a text, or a list of parts of type text"
	if json.Unmarshal(raw, &parts) != nil || len(parts) == 0 {
		return "", fmt.Errorf("found %s: want %s", short(raw), want)
	}
	var texts []string
	for i, p := range parts {
		if p.Type != "text" || p.Text == nil {
			return "", fmt.Errorf("part %d is of type %q: want %s", i, p.Type, want)
		}
		texts = append(texts, *p.Text)
	}
	return strings.Join(texts, "\n"), nil
}
