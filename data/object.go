package data

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
)

// Object is a JSON object that keeps the order of its keys.
type Object []Entry

// Entry is a key of an Object with its value.
type Entry struct {
	Key   string
	Value any
}

// EachKey walks the JSON object in text in its order. Tables cannot have free keys: they hold it as a list of {key,
// text} or {key, words}, or as a text of JSON; null is an empty object.
func EachKey(text []byte, what string, visit func(key string, value any) error) error {
	value, err := Decode(text)
	if s, ok := value.(string); ok && json.Valid([]byte(s)) { // which also bounds how deep it nests
		value, err = Decode([]byte(s))
	}
	if value == nil || err != nil {
		return err
	}
	object, ok := value.(Object)
	if list, isList := value.([]any); isList {
		object, ok = objectOf(list)
	}
	if !ok {
		return fmt.Errorf("%s is %s: want an object, or a list of {key, text} or {key, words}", what, KindOf(value))
	}
	for _, e := range object {
		if err := visit(e.Key, e.Value); err != nil {
			return err
		}
	}
	return nil
}

// objectOf makes an object of a list of {key, something}. A list of one keyword is that keyword.
func objectOf(list []any) (Object, bool) {
	var object Object
	for _, item := range list {
		e, ok := entryOf(item)
		if !ok {
			return nil, false
		}
		object = append(object, e)
	}
	return object, true
}

func entryOf(item any) (e Entry, ok bool) {
	fields, _ := item.(Object)
	for _, f := range fields {
		if f.Key == "key" && !ok {
			e.Key, ok = f.Value.(string)
		} else {
			e.Value = f.Value
		}
	}
	if one, isList := e.Value.([]any); isList && len(one) == 1 {
		e.Value = one[0]
	}
	return e, ok && len(fields) <= 2
}

// Decode decodes one JSON text, objects as Object.
func Decode(text []byte) (any, error) {
	if err := json.Unmarshal(text, new(json.RawMessage)); err != nil { // the decoder would read the first value alone
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	return decodeOrdered(dec)
}

// decodeOrdered decodes the next JSON value, objects as Object.
func decodeOrdered(dec *json.Decoder) (any, error) {
	token, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('['):
		list := []any{} // not nil, which would be written as null
		for dec.More() {
			value, err := decodeOrdered(dec)
			if err != nil {
				return nil, err
			}
			list = append(list, value)
		}
		_, err = dec.Token()
		return list, err
	case json.Delim('{'):
		object := Object{}
		for dec.More() {
			key, err := dec.Token()
			if err != nil {
				return nil, err
			}
			value, err := decodeOrdered(dec)
			if err != nil {
				return nil, err
			}
			object = append(object, Entry{key.(string), value})
		}
		_, err = dec.Token()
		return object, err
	}
	return token, nil
}

// MarshalJSON writes the keys and values in order, without escaping < and >.
func (o Object) MarshalJSON() ([]byte, error) {
	out := []byte("{")
	for _, e := range o {
		for _, part := range []any{e.Key, e.Value} {
			text, err := Marshal(part)
			if err != nil {
				return nil, err
			}
			out = append(append(out, text...), ':')
		}
		out[len(out)-1] = ','
	}
	return append(bytes.TrimSuffix(out, []byte(",")), '}'), nil
}

// Marshal is json.Marshal without escaping < and >, which think and answer tags are full of.
func Marshal(value any) ([]byte, error) {
	var out bytes.Buffer
	err := WriteLine(&out, value)
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), err
}

// Get is the value of a key.
func (o Object) Get(key string) (value any, found bool) {
	i := slices.IndexFunc(o, func(e Entry) bool { return e.Key == key })
	if i < 0 {
		return nil, false
	}
	return o[i].Value, true
}
