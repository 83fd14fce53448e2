package gguf

import (
	"fmt"
	"reflect"
	"strconv"
)

// Fields reads values of the metadata by their types, and keeps the first fault in Err.
type Fields struct {
	File *File
	Err  error
}

// Fail keeps a fault of a key, if it is the first.
func (x *Fields) Fail(key, format string, args ...any) {
	if x.Err == nil {
		x.Err = fmt.Errorf("%s%s: %s", x.File.label, key, fmt.Sprintf(format, args...))
	}
}

// Has says whether the file has a key.
func (x *Fields) Has(key string) bool {
	_, ok := x.File.Get(key)
	return ok
}

// field converts a value; a key that is absent has the default.
func field[T any](x *Fields, key string, absent T, want string, as func(any) (T, bool)) T {
	v, ok := x.File.Get(key)
	if !ok {
		return absent
	}
	out, ok := as(v)
	if !ok {
		if of := reflect.ValueOf(v); of.Kind() == reflect.Slice {
			v = fmt.Sprintf("a list of %d values", of.Len())
		}
		x.Fail(key, "found %.60v, want %s", v, want)
		return absent
	}
	return out
}

// Whole is an integer of any size.
func (x *Fields) Whole(key string, absent int) int {
	return field(x, key, absent, "a whole number", asWhole)
}

// Need is Whole of a key that must be there.
func (x *Fields) Need(key string) int {
	if !x.Has(key) {
		x.Fail(key, "found nothing, want a whole number")
	}
	return x.Whole(key, 0)
}

// Float is a number; one of 32 bits becomes the shortest decimal that rounds to it.
func (x *Fields) Float(key string, absent float64) float64 {
	return field(x, key, absent, "a number", asFloat)
}

// Text is a string.
func (x *Fields) Text(key, absent string) string { return field(x, key, absent, "a text", as[string]) }

// Flag is a truth value.
func (x *Fields) Flag(key string, absent bool) bool {
	return field(x, key, absent, "true or false", as[bool])
}

// Texts is a list of strings.
func (x *Fields) Texts(key string) []string {
	return field(x, key, nil, "a list of texts", as[[]string])
}

// Wholes is a list of integers.
func (x *Fields) Wholes(key string) []int {
	return field(x, key, nil, "a list of whole numbers", list(asWhole))
}

// Floats is a list of numbers.
func (x *Fields) Floats(key string) []float64 {
	return field(x, key, nil, "a list of numbers", list(asFloat))
}

func as[T any](v any) (T, bool) {
	out, ok := v.(T)
	return out, ok
}

func asWhole(v any) (int, bool) {
	switch of := reflect.ValueOf(v); {
	case of.CanInt():
		return int(of.Int()), true
	case of.CanUint() && of.Uint() < 1<<62:
		return int(of.Uint()), true
	}
	return 0, false
}

func asFloat(v any) (float64, bool) {
	switch n := v.(type) {
	case float32:
		return Decimal(n), true
	case float64:
		return n, true
	}
	n, ok := asWhole(v)
	return float64(n), ok
}

// Decimal is the shortest decimal that rounds to a number of 32 bits.
func Decimal(x float32) float64 {
	out, _ := strconv.ParseFloat(strconv.FormatFloat(float64(x), 'g', -1, 32), 64) // it reads what Go writes
	return out
}

func list[T any](one func(any) (T, bool)) func(any) ([]T, bool) {
	return func(v any) ([]T, bool) {
		of := reflect.ValueOf(v)
		if of.Kind() != reflect.Slice {
			return nil, false
		}
		out := make([]T, of.Len())
		for i := range out {
			var ok bool
			if out[i], ok = one(of.Index(i).Interface()); !ok {
				return nil, false
			}
		}
		return out, true
	}
}
