package tokenizer

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// A normalizer rewrites a piece of text.
type normalizer func(string) string

func same(s string) string { return s }

// readNormalizer reads tokenizer.json's normalizer; at is the field's name for messages.
func readNormalizer(raw json.RawMessage, at string) (normalizer, error) {
	kind, err := kindOf(raw, at)
	if err != nil || kind == "" {
		return same, err
	}
	switch kind {
	case "NFC":
		return func(s string) string { return compose(norm.NFC, s) }, nil
	case "NFD":
		return func(s string) string { return compose(norm.NFD, s) }, nil
	case "NFKC":
		return func(s string) string { return compose(norm.NFKC, s) }, nil
	case "NFKD":
		return func(s string) string { return compose(norm.NFKD, s) }, nil
	case "Lowercase":
		return lowercase, nil
	case "Prepend":
		return readPrepend(raw, at)
	case "Replace":
		return readReplaceNormalizer(raw, at)
	case "Strip":
		return readStripNormalizer(raw, at)
	case "Sequence":
		return readNormalizers(raw, at)
	}
	return nil, fmt.Errorf("%s.type %q: want NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Replace, Strip or Sequence", at, kind)
}

func readNormalizers(raw json.RawMessage, at string) (normalizer, error) {
	var spec struct{ Normalizers []json.RawMessage }
	if err := unmarshal(raw, at, &spec); err != nil {
		return nil, err
	}
	steps := make([]normalizer, len(spec.Normalizers))
	for i, r := range spec.Normalizers {
		var err error
		if steps[i], err = readNormalizer(r, fmt.Sprintf("%s.normalizers[%d]", at, i)); err != nil {
			return nil, err
		}
	}
	return func(s string) string {
		for _, step := range steps {
			s = step(s)
		}
		return s
	}, nil
}

func readPrepend(raw json.RawMessage, at string) (normalizer, error) {
	var spec struct{ Prepend string }
	err := unmarshal(raw, at, &spec)
	return func(s string) string {
		if s == "" {
			return s
		}
		return spec.Prepend + s
	}, err
}

func readReplaceNormalizer(raw json.RawMessage, at string) (normalizer, error) {
	replace, err := readReplace(raw, at)
	return replace, err
}

func readStripNormalizer(raw json.RawMessage, at string) (normalizer, error) {
	var spec struct {
		Left  bool `json:"strip_left"`
		Right bool `json:"strip_right"`
	}
	err := unmarshal(raw, at, &spec)
	return func(s string) string {
		if spec.Left {
			s = strings.TrimLeftFunc(s, unicode.IsSpace)
		}
		if spec.Right {
			s = strings.TrimRightFunc(s, unicode.IsSpace)
		}
		return s
	}, err
}

// readReplace reads Replace, which is a normalizer and a decoder.
func readReplace(raw json.RawMessage, at string) (func(string) string, error) {
	var spec struct {
		Pattern json.RawMessage
		Content string
	}
	if err := unmarshal(raw, at, &spec); err != nil {
		return nil, err
	}
	find, text, err := readPattern(spec.Pattern, at+".pattern")
	if err != nil {
		return nil, err
	}
	if find == nil {
		return func(s string) string { return strings.ReplaceAll(s, text, spec.Content) }, nil
	}
	return func(s string) string {
		var b strings.Builder
		find(s, func(part string, match bool) {
			if match {
				part = spec.Content
			}
			b.WriteString(part)
		})
		return b.String()
	}, nil
}

// lowercase goes character by character, as Rust's char::to_lowercase does.
func lowercase(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r == 'İ' {
			b.WriteString("i\u0307")
			continue
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// longestMarks is how many combining marks in a row golang.org/x/text surely normalizes as Unicode says; from thirty on, taken
// apart, it puts U+034F between them ("stream-safe"), which Hugging Face does not.
const longestMarks = 12

// compose normalizes, by our own hand where golang.org/x/text goes another way than Unicode.
func compose(form norm.Form, s string) string {
	if !needsCare(s) {
		return form.String(s)
	}
	runes := decompose(form, s)
	if form == norm.NFC || form == norm.NFKC {
		runes = recompose(runes)
	}
	return string(runes)
}

// needsCare finds long runs of marks, and marks on characters beyond U+FFFF, of which golang.org/x/text looks at the
// lower sixteen bits only: U+E003E with U+0338 would become ≯.
func needsCare(s string) bool {
	marks, high := 0, false
	for _, r := range s {
		switch {
		case r < 0x300:
			marks, high = 0, false
		case class(r) == 0 && !unicode.Is(unicode.M, r):
			marks, high = 0, r > 0xffff
		default:
			if marks++; marks > longestMarks || high {
				return true
			}
			high = r > 0xffff
		}
	}
	return false
}

// class is the canonical combining class.
func class(r rune) uint8 { return norm.NFD.PropertiesString(string(r)).CCC() }

// decompose takes every character apart and orders the marks.
func decompose(form norm.Form, s string) []rune {
	apart := norm.NFD
	if form == norm.NFKC || form == norm.NFKD {
		apart = norm.NFKD
	}
	var out []rune
	for _, r := range s {
		out = append(out, []rune(apart.String(string(r)))...)
	}
	for i := 0; i < len(out); i++ {
		end := i
		for end < len(out) && class(out[end]) != 0 {
			end++
		}
		slices.SortStableFunc(out[i:end], func(a, b rune) int { return int(class(a)) - int(class(b)) })
		i = max(i, end-1)
	}
	return out
}

// join composes two characters, if Unicode has one for them.
func join(starter, mark rune) (rune, bool) {
	joined := []rune(norm.NFC.String(string(starter) + string(mark)))
	ok := len(joined) == 1 && norm.NFD.String(string(joined)) == norm.NFD.String(string(starter))+norm.NFD.String(string(mark))
	return joined[0], ok
}

// recompose joins a starter with each mark that nothing of its class or higher stands before.
func recompose(in []rune) []rune {
	var out []rune
	starter := -1
	for _, r := range in {
		blocked := starter >= 0 && starter < len(out)-1 && class(out[len(out)-1]) >= class(r)
		if starter >= 0 && !blocked {
			if joined, ok := join(out[starter], r); ok {
				out[starter] = joined
				continue
			}
		}
		if class(r) == 0 {
			starter = len(out)
		}
		out = append(out, r)
	}
	return out
}
