package serve

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/data"
)

// roles maps roles of messages to those of chat templates. OpenAI also calls the system "developer".
var roles = map[string]string{"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}

// neutralInMessage lists the other fields of a message with values that mean nothing. Clients send back what they got,
// such as "refusal": null.
var neutralInMessage = map[string][]any{
	"name":              {},
	"refusal":           {""},
	"audio":             {},
	"annotations":       {[]any{}},
	"tool_calls":        {[]any{}},
	"tool_call_id":      {},
	"function_call":     {},
	"reasoning_content": {""},
}

func readMessages(raw json.RawMessage) ([]data.Message, error) {
	var list []map[string]json.RawMessage
	if err := read(raw, &list, "a list of messages, objects with role and content"); err != nil {
		return nil, err
	}
	out := make([]data.Message, len(list))
	for i, fields := range list {
		var err error
		if out[i], err = readMessage(fields); err != nil {
			return nil, fmt.Errorf("message %d: %w", i, err)
		}
	}
	return out, nil
}

func readMessage(fields map[string]json.RawMessage) (m data.Message, err error) {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		switch raw, values := fields[name], neutralInMessage[name]; {
		case name == "role":
			err = read(raw, &m.Role, "a text")
		case name == "content":
			m.Content, err = readContent(raw)
		case string(raw) == "null":
		case values != nil:
			err = onlyNeutral(raw, values)
		default:
			err = fmt.Errorf("unknown field: want role and content")
		}
		if err != nil {
			return m, fmt.Errorf("%s: %w", name, err)
		}
	}
	if _, ok := fields["content"]; !ok {
		return m, fmt.Errorf("content: missing: want a text")
	}
	role, ok := roles[m.Role]
	if !ok {
		return m, fmt.Errorf("role: found %q: want system, user or assistant", m.Role)
	}
	m.Role = role
	return m, nil
}

// readContent reads a text, or a list of text parts, which it joins as lines.
func readContent(raw json.RawMessage) (string, error) {
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
