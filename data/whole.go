package data

import (
	"errors"
	"reflect"
	"slices"
)

// JSON is a value as text, in which objects have the order of their keys in the file. Chat templates print tools so.
type JSON string

// wholeKey is the key of a message under which Rows keeps all of it, as [JSON], where it has more than role, content and
// train. It is no column of a file.
const wholeKey = "(whole)"

// The columns of conversations, and a message's keys that readers understand.
var (
	talks     = slices.Concat([]string{"messages", "prompt", "completion", "chosen", "rejected"}, talkColumns)
	knownKeys = slices.Concat(roleKeys, contentKeys, []string{"train", wholeKey})
)

// keepWhole keeps the column tools and the messages with more keys as texts. text is the row's JSON, nil for a row of a
// table: then keys are in alphabetical order, and those that are null are left out.
func keepWhole(fields map[string]any, text []byte) error {
	var ordered Object
	if fields["tools"] == nil && !slices.ContainsFunc(talks, func(c string) bool { return rich(fields[c]) }) {
		return nil
	}
	if text != nil {
		value, err := Decode(text)
		if err != nil {
			return err
		}
		ordered, _ = value.(Object)
	}
	var errs []error
	for _, column := range talks {
		whole, _ := ordered.last(column).([]any)
		list, _ := fields[column].([]any)
		for i, item := range list {
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

// keepMessage keeps a message, whose value in order is whole or unknown, less the key train.
func keepMessage(message map[string]any, whole any) error {
	object, _ := whole.(Object)
	object = slices.DeleteFunc(slices.Clone(object), func(e Entry) bool { return e.Key == "train" })
	var in any
	if len(object) > 0 {
		in = object
	}
	text, err := jsonText(without(message, "train"), in)
	message[wholeKey] = text
	return err
}

// jsonText is a value as JSON: that in order, or else that of a table.
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

func without(object map[string]any, key string) map[string]any {
	out := map[string]any{}
	for name, value := range object {
		if name != key {
			out[name] = value
		}
	}
	return out
}

// rich says that a conversation has a message with more.
func rich(value any) bool {
	list, _ := value.([]any)
	return slices.ContainsFunc(list, func(item any) bool {
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
