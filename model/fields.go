package model

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
)

// fields reads typed values out of a JSON object and keeps the first fault.
type fields struct {
	values map[string]any // numbers are json.Number
	prefix string         // "rope_parameters." inside such an object
	err    error
}

// parseObject decodes one JSON object, numbers kept as written.
func parseObject(data []byte) (map[string]any, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var m map[string]any
	if err := dec.Decode(&m); err != nil {
		return nil, fmt.Errorf("not a JSON object: %v", err)
	}
	if m == nil {
		return nil, fmt.Errorf("found null, want a JSON object")
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, fmt.Errorf("more text after the JSON object")
	}
	return m, nil
}

func (f *fields) fail(key, found, want string) {
	if f.err == nil {
		f.err = fmt.Errorf("%s%s: found %s, want %s", f.prefix, key, found, want)
	}
}

// get returns a value and whether it is there and not null.
func (f *fields) get(key string) (any, bool) {
	v, ok := f.values[key]
	return v, ok && v != nil
}

// null reports a key that is there with the value null.
func (f *fields) null(key string) bool {
	v, ok := f.values[key]
	return ok && v == nil
}

func (f *fields) float(key string, def float64) float64 {
	v, ok := f.get(key)
	if !ok {
		return def
	}
	n, isNumber := v.(json.Number)
	x, err := n.Float64()
	if !isNumber || err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
		f.fail(key, show(v), "a number")
		return def
	}
	return x
}

// whole reads an integer; 4096.0 counts as one.
func (f *fields) whole(key string, def int) int {
	v, ok := f.get(key)
	if !ok {
		return def
	}
	i, good := asInt(v)
	if !good {
		f.fail(key, show(v), "a whole number")
		return def
	}
	return i
}

// needWhole is whole for a key without a default.
func (f *fields) needWhole(key string) int {
	if _, ok := f.get(key); !ok {
		f.fail(key, "nothing", "a whole number")
		return 0
	}
	return f.whole(key, 0)
}

func (f *fields) boolean(key string, def bool) bool {
	v, ok := f.get(key)
	if !ok {
		return def
	}
	b, isBool := v.(bool)
	if !isBool {
		f.fail(key, show(v), "true or false")
		return def
	}
	return b
}

func (f *fields) text(key, def string) string {
	v, ok := f.get(key)
	if !ok {
		return def
	}
	s, isText := v.(string)
	if !isText {
		f.fail(key, show(v), "a string")
		return def
	}
	return s
}

// object returns a nested object, nil where there is none.
func (f *fields) object(key string) *fields {
	v, ok := f.get(key)
	if !ok {
		return nil
	}
	m, isObject := v.(map[string]any)
	if !isObject {
		f.fail(key, show(v), "an object or null")
		return nil
	}
	return &fields{values: m, prefix: f.prefix + key + "."}
}

// ids reads a number or a list of numbers.
func (f *fields) ids(key string) []int {
	v, ok := f.get(key)
	if !ok {
		return nil
	}
	list, isList := v.([]any)
	if !isList {
		list = []any{v}
	}
	var out []int
	for _, e := range list {
		i, good := asInt(e)
		if !good {
			f.fail(key, show(v), "a token id or a list of them")
			return nil
		}
		out = append(out, i)
	}
	return out
}

// id reads a token id; bos_token_id and pad_token_id may be lists in odd folders, of which the first counts.
func (f *fields) id(key string) *int {
	if ids := f.ids(key); len(ids) > 0 {
		return &ids[0]
	}
	return nil
}

func asInt(v any) (int, bool) {
	n, ok := v.(json.Number)
	if !ok {
		return 0, false
	}
	if i, err := n.Int64(); err == nil {
		return int(i), true
	}
	x, err := n.Float64()
	if err != nil || x != math.Trunc(x) || math.Abs(x) > 1<<53 {
		return 0, false
	}
	return int(x), true
}

// show prints a JSON value for a message, cut short.
func show(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return "something unreadable"
	}
	if len(b) > 60 {
		return string(bytes.ToValidUTF8(b[:57], nil)) + "..."
	}
	return string(b)
}
