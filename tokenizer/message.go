package tokenizer

import (
	"slices"
	"strings"

	"github.com/posttrain/posttrain/tokenizer/jinja"
)

// thoughtKeys are the names under which a message has its thoughts.
var thoughtKeys = []string{"reasoning_content", "thinking", "reasoning"}

// messagesOf are messages as transformers (5.24) hands them to a template: without keys that are null, and with thoughts
// under each of the names that templates read.
func messagesOf(msgs []Message) ([]any, error) {
	list := make([]any, len(msgs))
	for i, m := range msgs {
		if m.Whole == "" {
			list[i] = jinja.Dict{{Key: "role", Value: m.Role}, {Key: "content", Value: m.Content}}
			continue
		}
		value, err := jinja.FromJSON([]byte(m.Whole))
		if err != nil {
			return nil, err
		}
		list[i] = value
		if object, is := value.(jinja.Dict); is {
			list[i] = withThoughts(slices.DeleteFunc(object, func(e jinja.Entry) bool { return e.Value == any(jinja.None) }))
		}
	}
	return list, nil
}

// withThoughts gives thoughts the names that they lack: thinking, which gpt-oss reads, and reasoning_content.
func withThoughts(object jinja.Dict) jinja.Dict {
	for _, key := range thoughtKeys {
		thoughts := get(object, key)
		if thoughts == nil {
			continue
		}
		if get(object, "thinking") == nil {
			object = slices.Insert(object, 0, jinja.Entry{Key: "thinking", Value: thoughts})
		}
		return with(object, "reasoning_content", thoughts)
	}
	return object
}

// parsedCalls are the messages with arguments of calls that are texts of JSON objects, as OpenAI has them, read into
// objects. It is nil if no argument is such a text.
func parsedCalls(list []any) []any {
	out, found := slices.Clone(list), false
	for i, m := range out {
		changed, is := mapArguments(m, func(text string) (value any, ok bool) {
			value, err := jinja.FromJSON([]byte(text))
			_, ok = value.(jinja.Dict)
			return value, ok && err == nil
		})
		if is {
			out[i], found = changed, true
		}
	}
	if !found {
		return nil
	}
	return out
}

// mapArguments is a message in which read has replaced the arguments of calls that are texts.
func mapArguments(message any, read func(text string) (any, bool)) (out jinja.Dict, changed bool) {
	object, _ := message.(jinja.Dict)
	calls, _ := get(object, "tool_calls").([]any)
	calls = slices.Clone(calls)
	for i := range calls {
		call, _ := calls[i].(jinja.Dict)
		function, wrapped := get(call, "function").(jinja.Dict)
		if !wrapped {
			function = call
		}
		text, is := get(function, "arguments").(string)
		if !is {
			continue
		}
		if value, ok := read(text); ok {
			function = with(function, "arguments", value)
			if changed = true; wrapped {
				function = with(call, "function", function)
			}
			calls[i] = function
		}
	}
	return with(object, "tool_calls", calls), changed
}

// quotes says that a template has written arguments of calls that are texts as JSON texts, with quotes and escapes: it
// serialises them itself, and wants objects.
func quotes(text string, list []any) (is bool) {
	for _, m := range list {
		mapArguments(m, func(arguments string) (any, bool) {
			plain, _, _ := strings.Cut(strings.Map(asciiOrNUL, arguments), "\x00") // others may be escaped
			is = is || strings.Contains(text, `"`+quoter.Replace(plain))
			return nil, false
		})
	}
	return is
}

var quoter = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

func asciiOrNUL(r rune) rune {
	if r < ' ' || r > '~' {
		return 0
	}
	return r
}

// withoutEmpty drops empty lists of calls, which servers write and templates may refuse. It is nil if no message has one.
func withoutEmpty(list []any) []any {
	out, found := slices.Clone(list), false
	for i, m := range out {
		object, _ := m.(jinja.Dict)
		if calls, is := get(object, "tool_calls").([]any); is && len(calls) == 0 {
			out[i] = slices.DeleteFunc(slices.Clone(object), func(e jinja.Entry) bool { return e.Key == "tool_calls" })
			found = true
		}
	}
	if !found {
		return nil
	}
	return out
}

// get is the value of a key, nil without it.
func get(object jinja.Dict, key string) any {
	for _, e := range object {
		if e.Key == key {
			return e.Value
		}
	}
	return nil
}

// with is the object with a key's value, in the place of another, or at the end.
func with(object jinja.Dict, key string, value any) jinja.Dict {
	object = slices.Clone(object)
	if i := slices.IndexFunc(object, func(e jinja.Entry) bool { return e.Key == key }); i >= 0 {
		object[i].Value = value
		return object
	}
	return append(object, jinja.Entry{Key: key, Value: value})
}
