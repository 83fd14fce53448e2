package data

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/internal/float"
)

// textOf reads a column that is a string, a list of {role, content} or {from, value}, or an object with a text.
func textOf(column string, value any) (Text, error) {
	if object, ok := value.(map[string]any); ok {
		for _, key := range textKeys {
			if object[key] != nil {
				return textOf(column+"."+key, object[key])
			}
		}
	}
	if list, ok := value.([]any); ok {
		messages, err := messagesOf(column, list)
		return Text{Messages: messages}, err
	}
	plain, err := stringOf(column, value, "a string or a list of {role, content}")
	return Text{Plain: plain}, err
}

func stringOf(column string, value any, want string) (string, error) {
	s, ok := value.(string)
	if b, isBytes := value.([]byte); isBytes { // parquet without the string annotation
		s, ok = string(b), true
	}
	switch {
	case !ok:
		return "", fmt.Errorf("%s is %s: want %s", column, KindOf(value), want)
	case !utf8.ValidString(s):
		return "", fmt.Errorf("%s is not valid UTF-8", column)
	}
	return s, nil
}

func messagesOf(column string, list []any) ([]Message, error) {
	messages := make([]Message, len(list))
	for i, item := range list {
		object, ok := item.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("%s[%d] is %s: want {role, content}", column, i, KindOf(item))
		}
		var errs [3]error
		messages[i].Role, errs[0] = roleField(column, i, object)
		messages[i].Content, errs[1] = contentField(column, i, object)
		messages[i].Untrained, errs[2] = untrained(column, i, object)
		messages[i].Untrained = messages[i].Untrained || silent(object) && !callsTools(object)
		messages[i].Whole = textIn(object, wholeKey)
		messages[i].Tools = textIn(object, toolsKey)
		if err := cmp.Or(errs[:]...); err != nil {
			return nil, err
		}
	}
	return messages, nil
}

// textIn is a text of JSON that a reader has put into a message.
func textIn(object map[string]any, key string) string {
	text, _ := object[key].(JSON)
	return string(text)
}

// untrained reads "train": false, by other programs' names, too.
func untrained(column string, i int, object map[string]any) (untrained bool, err error) {
	for _, key := range trainKeys {
		value := object[key]
		if value == nil {
			continue
		}
		train, ok := value.(bool)
		if x, err := toFloat(value); err == nil {
			train, ok = x == 1, x == 0 || x == 1
		}
		if !ok {
			found := KindOf(value)
			if found == "a number" {
				found = fmt.Sprint(value)
			}
			return false, fmt.Errorf("%s[%d].%s is %s: want true or false, or 1 or 0", column, i, key, found)
		}
		untrained = untrained || !train
	}
	for _, key := range []string{"train_detail", "mask", "masked"} {
		if filled(object[key]) {
			return false, fmt.Errorf("%s[%d].%s is not read: want train, true or false, of whole messages", column, i, key)
		}
	}
	return untrained, nil
}

// roleField reads a role, by ShareGPT's name, too.
func roleField(column string, i int, object map[string]any) (string, error) {
	_, name, value := messageField(object, roleKeys)
	place := fmt.Sprintf("%s[%d].%s", column, i, name)
	if name == "" {
		keys := slices.Sorted(maps.Keys(object))
		return "", fmt.Errorf("%s[%d] has %s: want role and content", column, i, List(keys))
	}
	role, err := stringOf(place, value, "a string")
	if err != nil || name == "role" {
		return role, err
	}
	known, is := turnRoles[role]
	if !is {
		return "", fmt.Errorf("%s is %q: want human, gpt, system or tool", place, role)
	}
	return known, nil
}

// contentField reads a message's text: a string, or text parts. The assistant's may be null, where it calls tools.
func contentField(column string, i int, object map[string]any) (string, error) {
	found, name, value := messageField(object, contentKeys)
	place := fmt.Sprintf("%s[%d].%s", column, i, name)
	parts, several := value.([]any)
	switch {
	case silent(object):
		return "", nil
	case !found:
		keys := slices.Sorted(maps.Keys(object))
		return "", fmt.Errorf("%s[%d] has %s: want role and content", column, i, List(keys))
	case !several:
		return stringOf(place, value, "a string")
	}
	var all strings.Builder
	for k, part := range parts {
		text, err := partOf(fmt.Sprintf("%s[%d]", place, k), part)
		if err != nil {
			return "", err
		}
		all.WriteString(text)
	}
	return all.String(), nil
}

// silent says that a message of the assistant has no text: its content is null, or it has calls of tools alone.
func silent(object map[string]any) bool {
	found, _, value := messageField(object, contentKeys)
	role, _ := roleOf(object).(string)
	return turnRoles[role] == "assistant" && value == nil && (found || callsTools(object))
}

// partOf reads a part of a message's content.
func partOf(place string, part any) (string, error) {
	object, is := part.(map[string]any)
	if !is {
		return stringOf(place, part, "a part with type text")
	}
	if kind, is := object["type"].(string); object["type"] != nil && (!is || kind != "text") {
		return "", fmt.Errorf("%s.type is %.40q: want text, models of texts alone are trained", place,
			fmt.Sprint(object["type"]))
	}
	return stringOf(place+".text", object["text"], "a string")
}

// messageField finds the first of the names that a message has.
func messageField(object map[string]any, names []string) (found bool, name string, value any) {
	for _, name := range names {
		if value, found := object[name]; found {
			return true, name, value
		}
	}
	return false, "", nil
}

// numberOf reads a finite number; ok is false for a missing or null one.
func numberOf(fields map[string]any, column string) (x float64, ok bool, err error) {
	value, found := fields[column]
	if !found || value == nil {
		return 0, false, nil
	}
	x, err = toFloat(value)
	if err == nil && !float.IsFinite(x) {
		err = fmt.Errorf("%v", x)
	}
	if err != nil {
		return 0, false, fmt.Errorf("%s is %w: want a finite number", column, err)
	}
	return x, true, nil
}

// toFloat converts the readers' numbers: json.Number, or any width from parquet. The error is the value in words.
func toFloat(value any) (float64, error) {
	switch v := value.(type) {
	case json.Number:
		x, err := v.Float64()
		if strings.TrimPrefix(v.String(), "-") == notFinite {
			return 0, errors.New("NaN or Infinity")
		}
		if err != nil {
			return 0, errors.New(v.String())
		}
		return x, nil
	case string:
		return 0, fmt.Errorf("the string %.40q", v)
	}
	switch v := reflect.ValueOf(value); {
	case v.CanFloat():
		return v.Float(), nil
	case v.CanInt():
		return float64(v.Int()), nil
	case v.CanUint():
		return float64(v.Uint()), nil
	}
	return 0, errors.New(KindOf(value))
}

// OneLine is the beginning of a text in one line, for a message.
func OneLine(text string, n int) string {
	return fault.Beginning(fault.OneLine(text), n)
}
