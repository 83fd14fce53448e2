package data

import (
	"errors"
	"reflect"
	"slices"
)

// JSON is a value as text, in which objects have the order of their keys in the file. Chat templates print tools so.
type JSON string

// wholeKey is the key of a message under which Rows keeps all of it, as [JSON], where it has more than role, content and
// whether it is trained on. It is no column of a file.
const wholeKey = "(whole)"

// The columns whose values may be conversations, and a message's keys that readers understand.
var (
	messageColumns = slices.Concat([]string{"prompt", "completion", "chosen", "rejected", "history", "preferred_output",
		"non_preferred_output", "rejected_messages"}, conversationColumns)
	knownKeys = slices.Concat(roleKeys, contentKeys, trainKeys, []string{wholeKey})
)

// keepWhole keeps the column tools and the messages with more keys as texts. text is the row's JSON with the names of
// the file, nil for a row of a table: then keys are in alphabetical order, and those that are null are left out.
func keepWhole(fields map[string]any, text []byte, columns []string) error {
	input, _ := fields["input"].(map[string]any) // OpenAI's, with messages and tools
	if !tells(fields) && !tells(input) {
		return nil
	}
	var ordered Object
	if text != nil {
		value, err := Decode(text)
		if err != nil {
			return err
		}
		ordered, _ = value.(Object)
		ordered = ordered.rename(columns)
	}
	of, _ := ordered.last("input").(Object)
	return errors.Join(keepConversations(fields, ordered), keepConversations(input, of))
}

// tells says that a row has tools, or a conversation with more than roles and contents.
func tells(fields map[string]any) bool {
	return fields["tools"] != nil || slices.ContainsFunc(messageColumns, func(c string) bool { return rich(fields[c]) })
}

func keepConversations(fields map[string]any, ordered Object) error {
	var errs []error
	for _, column := range messageColumns {
		whole := listOf(ordered.last(column))
		for i, item := range listOf(fields[column]) {
			if message, is := item.(map[string]any); is && hasMore(message) {
				errs = append(errs, keepMessage(message, at(whole, i)))
			}
		}
	}
	if list, _ := fields["tools"].([]any); len(list) > 0 {
		var err error
		fields["tools"], err = jsonText(fields["tools"], ordered.last("tools"))
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// listOf is a list, or the list of a single message.
func listOf(value any) []any {
	switch value := value.(type) {
	case []any:
		return value
	case map[string]any, Object:
		return []any{value}
	}
	return nil
}

// keepMessage keeps a message, whose value in order is whole or unknown, less the keys of what is trained on.
func keepMessage(message map[string]any, whole any) error {
	object, _ := whole.(Object)
	object = slices.DeleteFunc(slices.Clone(object), func(e Entry) bool { return slices.Contains(trainKeys, e.Key) })
	var in any
	if len(object) > 0 {
		in = object
	}
	text, err := jsonText(without(message, trainKeys), in)
	message[wholeKey] = text
	return err
}

// jsonText is ordered as JSON, or where it is nil, value, which comes from a table.
func jsonText(value, ordered any) (JSON, error) {
	var err error
	if ordered == nil {
		if ordered, err = tidy("row", reflect.ValueOf(value)); err != nil {
			return "", err
		}
	}
	text, err := Marshal(ordered)
	return JSON(text), err
}

// bare is a value without the messages that are kept whole, as its file has it.
func bare(value any) any {
	switch value := value.(type) {
	case []any:
		all := slices.Clone(value)
		for i := range all {
			all[i] = bare(all[i])
		}
		return all
	case map[string]any:
		object := without(value, []string{wholeKey})
		for key := range object {
			object[key] = bare(object[key])
		}
		return object
	}
	return value
}

func without(object map[string]any, keys []string) map[string]any {
	out := map[string]any{}
	for name, value := range object {
		if !slices.Contains(keys, name) {
			out[name] = value
		}
	}
	return out
}

// rich says that a conversation has a message with more.
func rich(value any) bool {
	return slices.ContainsFunc(listOf(value), func(item any) bool {
		message, is := item.(map[string]any)
		return is && hasMore(message)
	})
}

// hasMore says that a message of roles and contents has further values that are not null.
func hasMore(message map[string]any) bool {
	if message["role"] == nil {
		return false
	}
	for key, value := range message {
		if value != nil && !slices.Contains(knownKeys, key) {
			return true
		}
	}
	return false
}

// last is the value of a key, the last one if it comes twice, as decoding into a map has it.
func (o Object) last(key string) (value any) {
	for _, e := range o {
		if e.Key == key {
			value = e.Value
		}
	}
	return value
}

func at(list []any, i int) any {
	if i < len(list) {
		return list[i]
	}
	return nil
}
