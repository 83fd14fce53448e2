package protocol

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// State is a snapshot of a server or an agent: small facts as JSON, and vectors by name.
type State struct {
	Head    json.RawMessage
	Vectors map[string][]float64 `json:"-"`
}

// Pack makes a snapshot of what v points to. Its exported fields are the head; exported fields that JSON leaves out, of
// type []float64, [][]float64 or map[string][]float64, are vectors, which share memory with v. Nil ones are left out.
func Pack(v any) (State, error) {
	head, err := json.Marshal(v)
	s := State{head, map[string][]float64{}}
	eachVector(reflect.ValueOf(v), "", func(name string, at reflect.Value) {
		switch x := at.Interface().(type) {
		case []float64:
			if x != nil {
				s.Vectors[name] = x
			}
		case map[string][]float64:
			for key, x := range x {
				s.Vectors[name+"/"+key] = x
			}
		case [][]float64:
			for i, x := range x {
				if x != nil {
					s.Vectors[name+"/"+strconv.Itoa(i)] = x
				}
			}
		}
	})
	return s, err
}

// Unpack takes a snapshot back into what v points to, which has whatever [Pack] does not store. A vector that v has now
// must be there; one that v has not may be missing. After an error v has parts of both.
func Unpack(s State, v any) error {
	var missing error
	had := map[string]bool{}
	eachVector(reflect.ValueOf(v), "", func(name string, at reflect.Value) {
		had[name] = at.Type() == reflect.TypeFor[[]float64]() && !at.IsNil()
	})
	if err := json.Unmarshal(s.Head, v); err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	eachVector(reflect.ValueOf(v), "", func(name string, at reflect.Value) {
		switch x := at.Addr().Interface().(type) {
		case *[]float64:
			if *x = s.Vectors[name]; *x == nil && had[name] {
				missing = fmt.Errorf("snapshot: it has no %s", name)
			}
		case *map[string][]float64:
			*x = map[string][]float64{}
			for key, v := range s.Vectors {
				if rest, ok := strings.CutPrefix(key, name+"/"); ok {
					(*x)[rest] = v
				}
			}
		case *[][]float64: // name/0, name/1, …, at least as many as there were; one that is missing is nil
			least := len(*x)
			*x = nil
			for i := 0; ; i++ {
				v, ok := s.Vectors[name+"/"+strconv.Itoa(i)]
				if !ok && i >= least {
					break
				}
				*x = append(*x, v)
			}
		}
	})
	return missing
}

// eachVector calls do with every vector below v, and with its name.
func eachVector(v reflect.Value, name string, do func(name string, at reflect.Value)) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			eachVector(v.Elem(), name, do)
		}
	case reflect.Slice:
		if k := v.Type().Elem().Kind(); k != reflect.Struct && k != reflect.Pointer {
			return
		}
		for i := range v.Len() {
			eachVector(v.Index(i), name+strconv.Itoa(i)+"/", do)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			switch f, field := v.Type().Field(i), v.Field(i); {
			case f.Anonymous:
				eachVector(field, name, do)
			case !f.IsExported():
			case f.Tag.Get("json") != "-":
				eachVector(field, name+f.Name+"/", do)
			default:
				switch field.Interface().(type) {
				case []float64, [][]float64, map[string][]float64:
					do(name+f.Name, field)
				}
			}
		}
	}
}

// check wants vectors of d numbers.
func (s State) check(d int) error {
	for name, v := range s.Vectors {
		if len(v) != d {
			return fmt.Errorf("snapshot: %s has %d numbers, want %d", name, len(v), d)
		}
	}
	return nil
}
