package gguf

import (
	"encoding/binary"
	"fmt"
	"io"
	"reflect"
)

// Entry is a key of the metadata with its value: a bool, a string, an integer or float of Go's sized types, or a slice
// of one of these.
type Entry struct {
	Key   string
	Value any
}

const kindArray = 9

// kind is the form of a value. The format numbers them.
type kind struct {
	name string
	size int // bytes, at least
	one  func(s *scanner) any
	many func(s *scanner, n int) any
	of   reflect.Type
}

var kinds = []kind{
	number[uint8]("uint8"), number[int8]("int8"), number[uint16]("uint16"), number[int16]("int16"),
	number[uint32]("uint32"), number[int32]("int32"), number[float32]("float32"), number[bool]("bool"),
	{"string", 8, func(s *scanner) any { return s.text() }, texts, reflect.TypeFor[string]()},
	{name: "array"}, // read by value itself
	number[uint64]("uint64"), number[int64]("int64"), number[float64]("float64"),
}

func number[T any](name string) kind {
	var zero T
	size := binary.Size(zero)
	decode := func(s *scanner, n int) []T {
		out := make([]T, n)
		if b := s.bytes(n * size); s.err == nil {
			_, s.err = binary.Decode(b, binary.LittleEndian, out)
		}
		return out
	}
	return kind{name, size, func(s *scanner) any { return decode(s, 1)[0] },
		func(s *scanner, n int) any { return decode(s, n) }, reflect.TypeFor[T]()}
}

func texts(s *scanner, n int) any {
	out := make([]string, 0, n)
	for range n {
		if out = append(out, s.text()); s.err != nil {
			break
		}
	}
	return out
}

// value reads a value with its kind.
func (s *scanner) value() any {
	k := s.kind()
	if k.name != "array" {
		return s.checked(k, 1, func() any { return k.one(s) })
	}
	k = s.kind()
	n := s.count("elements")
	if k.name == "array" {
		s.fail("found an array of arrays, want one of numbers, strings or truth values")
	}
	return s.checked(k, n, func() any { return k.many(s, n) })
}

func (s *scanner) kind() kind {
	n := s.number32()
	if s.err == nil && int(n) >= len(kinds) {
		s.fail("found kind %d of a value, want 0 to %d", n, len(kinds)-1)
	}
	if s.err != nil {
		return kinds[0]
	}
	return kinds[n]
}

// checked reads n values of a kind if the file has room for them.
func (s *scanner) checked(k kind, n int, read func() any) any {
	if s.err == nil && int64(n) > (s.size-s.at)/int64(max(1, k.size)) {
		s.fail("truncated: it has %d values of %s, and the file ends %d bytes later", n, k.name, s.size-s.at)
	}
	if s.err != nil {
		return nil
	}
	return read()
}

// writeValue writes a value with its kind.
func writeValue(w io.Writer, v any) error {
	of := reflect.ValueOf(v)
	if !of.IsValid() {
		return fmt.Errorf("found no value")
	}
	if of.Kind() != reflect.Slice {
		return writeOne(w, of.Type(), v)
	}
	head := binary.LittleEndian.AppendUint32(nil, kindArray)
	i, err := kindOf(of.Type().Elem())
	if err != nil {
		return err
	}
	head = binary.LittleEndian.AppendUint32(head, uint32(i))
	if _, err := w.Write(binary.LittleEndian.AppendUint64(head, uint64(of.Len()))); err != nil {
		return err
	}
	if list, ok := v.([]string); ok {
		for _, text := range list {
			if err := writeText(w, text); err != nil {
				return err
			}
		}
		return nil
	}
	return binary.Write(w, binary.LittleEndian, v)
}

func writeOne(w io.Writer, of reflect.Type, v any) error {
	i, err := kindOf(of)
	if err == nil {
		err = binary.Write(w, binary.LittleEndian, uint32(i))
	}
	if err != nil {
		return err
	}
	if text, ok := v.(string); ok {
		return writeText(w, text)
	}
	return binary.Write(w, binary.LittleEndian, v)
}

func kindOf(t reflect.Type) (int, error) {
	for i, k := range kinds {
		if k.of == t {
			return i, nil
		}
	}
	return 0, fmt.Errorf("a value of Go's type %v has no kind in the format", t)
}

func writeText(w io.Writer, text string) error {
	if err := binary.Write(w, binary.LittleEndian, uint64(len(text))); err != nil {
		return err
	}
	_, err := io.WriteString(w, text)
	return err
}
