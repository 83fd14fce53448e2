// Package fault says what is wrong with an options struct. Every options type of the program has the same method,
//
//	Check() []fault.Fault
//
// which names each wrong field by its YAML key, with the value found and the values accepted. Most of a check is
// written beside the field, in its tags, and [Check] reads them:
//
//	Beta   float64 `yaml:"beta" want:">0"`                       // a number above 0
//	TopK   int     `yaml:"top_k" want:">=0" zero:"off"`          // a whole number, 0 (off) or more
//	Type   string  `yaml:"type" want:"dpo|ipo"`                  // dpo or ipo
//	Model  string  `yaml:"model" want:"given" words:"a folder"`  // not empty; the words are for messages
//	URL    string  `yaml:"base_url" want:"@url"`                 // a named format: @url, @backend, @model …
package fault

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// A Fault is one thing that is wrong with options.
type Fault struct {
	Key     string // YAML key within the struct: "beta", "data.train"
	Value   string // the value found, as a message shows it
	Problem string // what is wrong with it, and which values are accepted
}

func (f Fault) Error() string { return f.Key + " " + f.Value + ": " + f.Problem }

// Faults collects the faults of a struct.
type Faults []Fault

// Add adds a fault. A text value is shown in quotes.
func (l *Faults) Add(key string, value any, format string, args ...any) {
	*l = append(*l, Fault{key, show(reflect.ValueOf(value)), fmt.Sprintf(format, args...)})
}

// Err joins faults into one error of one line, nil without faults; section comes before every key ("loss").
func Err(section string, faults []Fault) error {
	if len(faults) == 0 {
		return nil
	}
	lines := make([]string, len(faults))
	for i, f := range faults {
		lines[i] = f.Error()
		if section != "" {
			lines[i] = section + "." + lines[i]
		}
	}
	return errors.New(strings.Join(lines, "; "))
}

// Check compares every field of a struct, and of its inner structs, with the field's tags.
func Check(options any) (faults Faults) {
	check(reflect.ValueOf(options), "", &faults)
	return faults
}

func check(v reflect.Value, prefix string, faults *Faults) {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		name, kind, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		switch {
		case name == "-":
		case kind == "inline":
			check(v.Field(i), prefix, faults)
		case field.Type.Kind() == reflect.Struct:
			check(v.Field(i), prefix+name+".", faults)
		default:
			if c := ConstraintOf(field); !c.Accepts(v.Field(i)) {
				faults.Add(prefix+name, c.conceal(v.Field(i)), "want %s", c.Words)
			}
		}
	}
}

// Unused names the given options of a struct that belong to other choices than the one that is made: a field with the
// tag of:"dpo=0 simpo=1" is a pointer that only the choices dpo and simpo use.
func Unused(options any, choice string) (faults Faults) {
	v := reflect.ValueOf(options)
	for i := range v.NumField() {
		tags := v.Type().Field(i).Tag
		var users []string
		for _, word := range strings.Fields(tags.Get("of")) {
			user, _, _ := strings.Cut(word, "=")
			users = append(users, user)
		}
		if len(users) == 0 || v.Field(i).IsNil() || slices.Contains(users, choice) {
			continue
		}
		name, _, _ := strings.Cut(tags.Get("yaml"), ",")
		do := map[bool]string{true: "does", false: "do"}[len(users) == 1]
		faults = append(faults, Fault{name, fmt.Sprint(v.Field(i).Elem()),
			fmt.Sprintf("%s does not use it, only %s %s; remove it", choice, And(users), do)})
	}
	return faults
}

// show prints a value for a message.
func show(v reflect.Value) string {
	for v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	if v.Kind() == reflect.String {
		return strconv.Quote(WithoutSecrets(v.String()))
	}
	return fmt.Sprint(v.Interface())
}

// WithoutSecrets removes from a URL what may be a key: the user's name and password, and the query.
func WithoutSecrets(text string) string {
	scheme, rest, is := strings.Cut(text, "://")
	if !is {
		return text
	}
	if at := strings.LastIndex(rest, "@"); at >= 0 {
		rest = "…" + rest[at:]
	}
	if path, _, has := strings.Cut(rest, "?"); has {
		rest = path + "?…"
	}
	return scheme + "://" + rest
}

// Or joins words: "a, b or c".
func Or(words []string) string { return join(words, " or ") }

// And joins words: "a, b and c".
func And(words []string) string { return join(words, " and ") }

func join(words []string, last string) string {
	n := len(words) - 1
	if n <= 0 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:n], ", ") + last + words[n]
}
