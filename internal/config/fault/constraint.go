package fault

import (
	"math"
	"net/url"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Constraint is what the tags of a field say.
type Constraint struct {
	Words  string // the values accepted, in words, after "want"
	Secret bool   // a wrong value may be a key: messages do not show it
	Free   bool   // a text may have line breaks and control characters

	ok func(reflect.Value) bool // nil: every value of the type
}

// Accepts says whether a field's value keeps to the constraint. A nil pointer is an option that is not given.
func (c Constraint) Accepts(v reflect.Value) bool {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return true
		}
		v = v.Elem()
	}
	return c.ok == nil || c.ok(v)
}

func (c Constraint) conceal(v reflect.Value) any {
	if c.Secret {
		return hidden{}
	}
	return v.Interface()
}

// hidden replaces a value that may be a key.
type hidden struct{}

func (hidden) String() string { return "…" }

// A format is a named constraint on texts.
type format struct {
	words  string
	ok     func(string) bool
	secret bool
	free   bool
}

var formats = map[string]format{
	"@backend": {words: "auto, go, onnx, onnx:LIBRARY, xla, xla:cpu, xla:cuda or xla:PLUGIN", ok: isBackend},
	"@url": {words: "the URL of an OpenAI-compatible server, such as http://localhost:8000/v1, without a key " +
		"in it", ok: isURL},
	"@variable": {words: "the name of an environment variable, such as OPENAI_API_KEY, not the key itself",
		ok: IsVariable, secret: true},
	"@model": {words: "embedded, a Hugging Face model folder, or org/name on the hub",
		ok: func(name string) bool { return name != "" }},
	"@text": {words: "text", ok: func(string) bool { return true }, free: true},
}

// ConstraintOf reads the tags want, zero and words of a field.
func ConstraintOf(field reflect.StructField) Constraint {
	want, t := field.Tag.Get("want"), field.Type
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	c := constraintOf(want, t, field.Tag.Get("zero"))
	if words := field.Tag.Get("words"); words != "" {
		c.Words = words
	}
	return c
}

func constraintOf(want string, t reflect.Type, zero string) Constraint {
	switch f, named := formats[want]; {
	case named:
		return Constraint{f.words, f.secret, f.free, func(v reflect.Value) bool { return f.ok(v.String()) }}
	case want == "given":
		return Constraint{Words: "text", ok: func(v reflect.Value) bool { return v.Len() > 0 }}
	case strings.ContainsAny(want, "<>"):
		return rangeConstraint(want, t, zero)
	case want != "":
		return wordConstraint(strings.Split(want, "|"), t)
	}
	return Constraint{Words: typeWords(t)}
}

// typeWords describes a type whose every value is accepted.
func typeWords(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "text"
	case reflect.Slice:
		if t.Elem().Kind() != reflect.String {
			return "a list of numbers"
		}
		return "a list of texts"
	case reflect.Uint64:
		return "a whole number, 0 or more"
	}
	return number(t)
}

func number(t reflect.Type) string {
	switch {
	case t.Kind() == reflect.Slice:
		return "a list, each item " + number(t.Elem())
	case t == reflect.TypeFor[time.Duration]():
		return "a time"
	case t.Kind() == reflect.Float64:
		return "a number"
	}
	return "a whole number"
}

// wordConstraint accepts one of some words; of a list, at least one, and only these. The word @file accepts what looks
// like a file's path: it has a separator or an extension.
func wordConstraint(words []string, t reflect.Type) Constraint {
	if t.Kind() != reflect.Slice {
		said, file := slices.Clone(words), slices.Index(words, "@file")
		if file >= 0 {
			said[file] = "a file such as ./prompt.tmpl"
		}
		return Constraint{Words: Or(said), ok: func(v reflect.Value) bool {
			return slices.Contains(words, v.String()) || file >= 0 && looksLikeFile(v.String())
		}}
	}
	return Constraint{Words: "some of " + And(words), ok: func(v reflect.Value) bool {
		for i := range v.Len() {
			if !slices.Contains(words, v.Index(i).String()) {
				return false
			}
		}
		return v.Len() > 0
	}}
}

func looksLikeFile(text string) bool {
	return strings.ContainsRune(text, '/') || strings.ContainsRune(text, filepath.Separator) || filepath.Ext(text) != ""
}

// rangeConstraint accepts the finite numbers within bounds such as ">=0 <1", and lists of them.
func rangeConstraint(want string, t reflect.Type, zero string) Constraint {
	var bounds []bound
	var words []string
	for _, text := range strings.Fields(want) {
		b := boundOf(text)
		bounds, words = append(bounds, b), append(words, b.words(zero))
	}
	text := strings.Join(words, " and ")
	if text[0] >= '0' && text[0] <= '9' {
		text = "," + " " + text
	} else {
		text = " " + text
	}
	if t == reflect.TypeFor[time.Duration]() {
		text += ", such as 90s or 5m"
	}
	within := func(v reflect.Value) bool {
		x := float(v)
		return !math.IsInf(x, 0) && !slices.ContainsFunc(bounds, func(b bound) bool { return !b.holds(x) })
	}
	return Constraint{Words: number(t) + text, ok: func(v reflect.Value) bool {
		if v.Kind() != reflect.Slice {
			return within(v)
		}
		for i := range v.Len() {
			if !within(v.Index(i)) {
				return false
			}
		}
		return true
	}}
}

func float(v reflect.Value) float64 {
	if v.CanInt() {
		return float64(v.Int())
	}
	return v.Float()
}

// bound is one side of a range.
type bound struct {
	sign  string // >, >=, < or <=
	limit float64
}

func boundOf(text string) bound {
	sign := text[:len(text)-len(strings.TrimLeft(text, "<>="))]
	limit, err := strconv.ParseFloat(text[len(sign):], 64)
	if err != nil {
		panic("fault: bad bound in a want tag: " + text)
	}
	return bound{sign, limit}
}

func (b bound) holds(x float64) bool {
	switch b.sign {
	case ">":
		return x > b.limit
	case ">=":
		return x >= b.limit
	case "<":
		return x < b.limit
	}
	return x <= b.limit
}

// words describes the bound; zero says what a value of 0 means ("off").
func (b bound) words(zero string) string {
	n := strconv.FormatFloat(b.limit, 'g', -1, 64)
	if b.sign == ">=" && b.limit == 0 && zero != "" {
		n += " (" + zero + ")"
	}
	switch b.sign {
	case ">":
		return "above " + n
	case ">=":
		return n + " or more"
	case "<":
		return "below " + n
	}
	return "at most " + n
}

// IsVariable says whether a text can be the name of an environment variable.
func IsVariable(name string) bool { return variable.MatchString(name) }

var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// isURL accepts the address of a server, or nothing. People put keys into user names and queries, which must not be
// written to files.
func isURL(text string) bool {
	u, err := url.Parse(text)
	return text == "" || err == nil && (u.Scheme == "http" || u.Scheme == "https") &&
		u.Host != "" && u.User == nil && u.RawQuery == "" && u.Fragment == ""
}

func isBackend(text string) bool {
	engine, detail, has := strings.Cut(text, ":")
	switch engine {
	case "auto", "go":
		return !has
	case "onnx", "xla":
		return !has || detail != ""
	case "device": // of a plan: it is not there
		return detail != ""
	}
	return false
}
