package model

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
)

// fields reads typed values from a JSON object and keeps the first error.
type fields struct {
	values map[string]any // numbers are json.Number
	prefix string         // "rope_parameters." inside such an object
	err    error
}

// parseObject decodes one JSON object. Numbers stay json.Number.
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
		return nil, fmt.Errorf("found more text after the JSON object, want none")
	}
	return m, nil
}

func (f *fields) fail(key, found, want string) {
	if f.err == nil {
		f.err = fmt.Errorf("%s%s: found %s, want %s", f.prefix, key, found, want)
	}
}

// take keeps the first error of a nested object.
func (f *fields) take(nested *fields) {
	if f.err == nil {
		f.err = nested.err
	}
}

// get returns a value, and false if it is absent or null.
func (f *fields) get(key string) (any, bool) {
	v, ok := f.values[key]
	return v, ok && v != nil
}

// isNull reports whether a key has the value null.
func (f *fields) isNull(key string) bool {
	v, ok := f.values[key]
	return ok && v == nil
}

// readField converts a value with as. It returns def if the value is absent, null or wrong.
func readField[T any](f *fields, key string, def T, want string, as func(any) (T, bool)) T {
	v, ok := f.get(key)
	if !ok {
		return def
	}
	x, ok := as(v)
	if !ok {
		f.fail(key, show(v), want)
		return def
	}
	return x
}

func (f *fields) float(key string, def float64) float64 {
	return readField(f, key, def, "a number", asFloat)
}

// whole reads an integer, which may be written as 4096.0.
func (f *fields) whole(key string, def int) int {
	return readField(f, key, def, "a whole number", asInt)
}

func (f *fields) boolean(key string, def bool) bool {
	return readField(f, key, def, "true or false", as[bool])
}

func (f *fields) text(key, def string) string {
	return readField(f, key, def, "a string", as[string])
}

// requireWhole is whole for a key without a default.
func (f *fields) requireWhole(key string) int {
	if _, ok := f.get(key); !ok {
		f.fail(key, "nothing", "a whole number")
		return 0
	}
	return f.whole(key, 0)
}

// object returns a nested object, nil if it is absent.
func (f *fields) object(key string) *fields {
	m := readField(f, key, nil, "an object or null", as[map[string]any])
	if m == nil {
		return nil
	}
	return &fields{values: m, prefix: f.prefix + key + "."}
}

func (f *fields) ids(key string) []int {
	return readField(f, key, nil, "a token id or a list of them", asInts)
}

// id reads a token id. Some folders have lists for bos_token_id and pad_token_id; then it is the first one.
func (f *fields) id(key string) *int {
	if ids := f.ids(key); len(ids) > 0 {
		return &ids[0]
	}
	return nil
}

func (f *fields) floats(key string) []float64 {
	return readField(f, key, nil, "a list of numbers", asFloats)
}

func asFloats(v any) (out []float64, ok bool) {
	list, ok := v.([]any)
	for _, e := range list {
		x, isNumber := asFloat(e)
		if !isNumber {
			return nil, false
		}
		out = append(out, x)
	}
	return out, ok
}

func as[T any](v any) (T, bool) {
	x, ok := v.(T)
	return x, ok
}

func asFloat(v any) (float64, bool) {
	n, ok := v.(json.Number)
	x, err := n.Float64()
	return x, ok && err == nil
}

// asInts accepts a number or a list of numbers.
func asInts(v any) (out []int, ok bool) {
	list, isList := v.([]any)
	if !isList {
		list = []any{v}
	}
	for _, e := range list {
		i, ok := asInt(e)
		if !ok {
			return nil, false
		}
		out = append(out, i)
	}
	return out, true
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

// show prints a JSON value for a message, at most 60 bytes of it.
func show(v any) string {
	b, _ := json.Marshal(v) // v comes from JSON
	if len(b) > 60 {
		return string(bytes.ToValidUTF8(b[:57], nil)) + "..."
	}
	return string(b)
}
