package ci

import (
	"fmt"
	"strings"

	"github.com/posttrain/posttrain/data"
)

// UnmarshalJSON keeps the order of the keys and makes texts of the values.
func (f *Fields) UnmarshalJSON(text []byte) error {
	return data.EachKey(text, "information", func(key string, value any) error {
		*f = append(*f, Field{key, flatText(value)})
		return nil
	})
}

// UnmarshalJSON keeps the order of the keys and makes keywords of the values.
func (k *Keywords) UnmarshalJSON(text []byte) error {
	return data.EachKey(text, "annotation", func(key string, value any) error {
		if words := flatWords(value); len(words) > 0 {
			*k = append(*k, Keyword{key, words})
		}
		return nil
	})
}

// MarshalJSON writes an object in the order of the fields.
func (f Fields) MarshalJSON() ([]byte, error) {
	var object data.Object
	for _, field := range f {
		object = append(object, data.Entry{Key: field.Key, Value: field.Text})
	}
	return object.MarshalJSON()
}

// MarshalJSON writes an object in the order of the keys, a single keyword as a string.
func (k Keywords) MarshalJSON() ([]byte, error) {
	var object data.Object
	for _, entry := range k {
		var value any = entry.Words
		if len(entry.Words) == 1 {
			value = entry.Words[0]
		}
		object = append(object, data.Entry{Key: entry.Key, Value: value})
	}
	return object.MarshalJSON()
}

// flatText writes a value as text: list elements one a line, objects as "key: value" lines.
func flatText(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		return v
	case []any:
		lines := make([]string, len(v))
		for i, x := range v {
			lines[i] = flatText(x)
		}
		return strings.Join(lines, "\n")
	case data.Object:
		lines := make([]string, len(v))
		for i, e := range v {
			lines[i] = e.Key + ": " + flatText(e.Value)
		}
		return strings.Join(lines, "\n")
	}
	return fmt.Sprint(value)
}

// flatWords lists the strings and numbers inside a value, trimmed, empty ones left out.
func flatWords(value any) []string {
	switch v := value.(type) {
	case nil:
		return nil
	case []any:
		var words []string
		for _, x := range v {
			words = append(words, flatWords(x)...)
		}
		return words
	case data.Object:
		var words []string
		for _, e := range v {
			words = append(words, flatWords(e.Value)...)
		}
		return words
	}
	if word := strings.TrimSpace(flatText(value)); word != "" {
		return []string{word}
	}
	return nil
}
