package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Default is a T with the defaults of its tags:
//
//	BatchSize int       `yaml:"batch_size" default:"32"`
//	Gamma     *float64  `yaml:"gamma" of:"simpo=1 cpo=2"`                   // of what is chosen: see DefaultOf
//	Train     Training  `yaml:"train" defaults:"batch_size=16 schedule="`   // other defaults of a section's keys
//
// changes are other defaults of keys, such as "train.batch_size=8".
func Default[T any](changes ...string) T { return DefaultOf[T]("", changes...) }

// DefaultOf is Default where the options with a tag "of" belong to a choice, such as a loss: the options of other
// choices stay nil.
func DefaultOf[T any](choice string, changes ...string) (options T) {
	top := reflect.ValueOf(&options).Elem()
	fill(top, choice)
	changeDefaults(top, changes)
	return options
}

// fill writes the defaults of the tags.
func fill(v reflect.Value, choice string) {
	for i, known := range fields(v.Type()) {
		tags := v.Type().Field(i).Tag
		switch value, has := tags.Lookup("default"); {
		case known.section:
			fill(v.Field(i), choice)
			changeDefaults(v.Field(i), strings.Fields(tags.Get("defaults")))
		case known.key == "":
		case has:
			write(v.Field(i), known.key, value)
		default:
			if value, has := fieldOf(tags.Get("of"), choice); has {
				write(v.Field(i), known.key, value)
			}
		}
	}
}

// fieldOf is the value of a key in a tag such as "dpo=0 simpo=1".
func fieldOf(tag, key string) (value string, has bool) {
	for _, word := range strings.Fields(tag) {
		if k, v, _ := strings.Cut(word, "="); k == key {
			return v, true
		}
	}
	return "", false
}

// changeDefaults writes values of keys, which the program names.
func changeDefaults(v reflect.Value, changes []string) {
	s := schemaOf(v.Type(), nil)
	for _, change := range changes {
		key, value, _ := strings.Cut(change, "=")
		i := slices.IndexFunc(s.leaves, func(l leaf) bool { return l.key == key && l.index != nil })
		if i < 0 {
			panic(fmt.Errorf("config: no key %q in %v, whose default is %q", key, v.Type(), value))
		}
		write(v.FieldByIndex(s.leaves[i].index), key, value)
	}
}

// write writes a value that a tag has.
func write(v reflect.Value, key, text string) {
	if text == "" {
		v.SetZero()
	} else if !(given{form: formRaw, text: text}).assign(v) {
		panic(fmt.Errorf("config: %s has the default %q, which is no %v", key, text, v.Type()))
	}
}
