package data

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// UnmarshalJSON keeps the order of the keys and flattens values to text.
func (f *CIFields) UnmarshalJSON(text []byte) error {
	return eachKey(text, "information", func(key string, value any) error {
		*f = append(*f, CIField{key, flatText(value)})
		return nil
	})
}

// UnmarshalJSON keeps the order of the keys and flattens values to keywords.
func (k *CIKeywords) UnmarshalJSON(text []byte) error {
	return eachKey(text, "annotation", func(key string, value any) error {
		if words := flatWords(value); len(words) > 0 {
			*k = append(*k, CIKeyword{key, words})
		}
		return nil
	})
}

// MarshalJSON writes an object in the order of the fields.
func (f CIFields) MarshalJSON() ([]byte, error) {
	return marshalObject(len(f), func(i int) (string, any) { return f[i].Key, f[i].Text })
}

// MarshalJSON writes an object in the order of the keys, a single keyword as a string.
func (k CIKeywords) MarshalJSON() ([]byte, error) {
	return marshalObject(len(k), func(i int) (string, any) {
		if len(k[i].Words) == 1 {
			return k[i].Key, k[i].Words[0]
		}
		return k[i].Key, k[i].Words
	})
}

// entry is a key of a JSON object with its value; entries keeps them in order.
type entry struct {
	key   string
	value any
}

type entries []entry

// eachKey walks the JSON object in text in its order. Tables, which have no free keys, hold it as a list of {key, text} or
// {key, words}, or as a text of JSON; null is an empty object.
func eachKey(text []byte, what string, visit func(key string, value any) error) error {
	value, err := decodeOrdered(text)
	if s, ok := value.(string); ok && json.Valid([]byte(s)) { // which also bounds how deep it nests
		value, err = decodeOrdered([]byte(s))
	}
	if value == nil || err != nil {
		return err
	}
	object, ok := value.(entries)
	if list, isList := value.([]any); isList {
		object, ok = keyed(list)
	}
	if !ok {
		return fmt.Errorf("%s is %s: want an object, or a list of {key, text} or {key, words}", what, kindOf(value))
	}
	for _, e := range object {
		if err := visit(e.key, e.value); err != nil {
			return err
		}
	}
	return nil
}

// keyed turns a list of {key, something} into the object it stands for. A list of one keyword is that keyword.
func keyed(list []any) (entries, bool) {
	var object entries
	for _, item := range list {
		e, ok := keyedEntry(item)
		if !ok {
			return nil, false
		}
		object = append(object, e)
	}
	return object, true
}

func keyedEntry(item any) (e entry, ok bool) {
	fields, _ := item.(entries)
	for _, f := range fields {
		if f.key == "key" && !ok {
			e.key, ok = f.value.(string)
		} else {
			e.value = f.value
		}
	}
	if one, isList := e.value.([]any); isList && len(one) == 1 {
		e.value = one[0]
	}
	return e, ok && len(fields) <= 2
}

// decodeOrdered decodes one JSON text, objects as entries.
func decodeOrdered(text []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	return ordered(dec)
}

// ordered decodes the next JSON value, objects as entries.
func ordered(dec *json.Decoder) (any, error) {
	token, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('['):
		var list []any
		for dec.More() {
			value, err := ordered(dec)
			if err != nil {
				return nil, err
			}
			list = append(list, value)
		}
		_, err = dec.Token()
		return list, err
	case json.Delim('{'):
		object := entries{}
		for dec.More() {
			key, err := dec.Token()
			if err != nil {
				return nil, err
			}
			value, err := ordered(dec)
			if err != nil {
				return nil, err
			}
			object = append(object, entry{key.(string), value})
		}
		_, err = dec.Token()
		return object, err
	}
	return token, nil
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
	case entries:
		lines := make([]string, len(v))
		for i, e := range v {
			lines[i] = e.key + ": " + flatText(e.value)
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
	case entries:
		var words []string
		for _, e := range v {
			words = append(words, flatWords(e.value)...)
		}
		return words
	}
	if word := strings.TrimSpace(flatText(value)); word != "" {
		return []string{word}
	}
	return nil
}

// marshalObject writes n keys and values in order, without escaping < and >.
func marshalObject(n int, at func(i int) (string, any)) ([]byte, error) {
	out := []byte("{")
	for i := range n {
		key, value := at(i)
		for _, part := range []any{key, value} {
			text, err := marshal(part)
			if err != nil {
				return nil, err
			}
			out = append(append(out, text...), ':')
		}
		out[len(out)-1] = ','
	}
	return append(bytes.TrimSuffix(out, []byte(",")), '}'), nil
}

// marshal is json.Marshal without escaping < and >, which think and answer tags are full of.
func marshal(value any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	err := enc.Encode(value)
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), err
}
