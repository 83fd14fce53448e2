package tokenizer

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// A normalizer rewrites a piece of text. It ends with a fault if it takes too long.
type normalizer func(s string, until deadline) string

func identity(s string, _ deadline) string { return s }

// simple is a normalizer that is always fast.
func simple(f func(string) string) normalizer {
	return func(s string, _ deadline) string { return f(s) }
}

// normalizers read tokenizer.json's normalizer. What lengthens a text counts in grown.
func normalizers(grown *growth) stage[normalizer] {
	return stage[normalizer]{
		absent: identity,
		list:   "normalizers",
		join: func(steps []normalizer) normalizer {
			return func(s string, until deadline) string {
				for _, step := range steps {
					s = step(s, until)
				}
				return s
			}
		},
		want: "NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Replace, Strip or Sequence",
		types: map[string]reader[normalizer]{
			"NFC": form(norm.NFC), "NFD": form(norm.NFD), "NFKC": form(norm.NFKC), "NFKD": form(norm.NFKD),
			"Lowercase": always(simple(lowercase)), "Strip": readStripNormalizer,
			"Prepend": func(raw json.RawMessage, at string) (normalizer, error) { return readPrepend(raw, at, grown) },
			"Replace": func(raw json.RawMessage, at string) (normalizer, error) {
				return readReplace(raw, at, grown, findRegex)
			},
		},
	}
}

func form(f norm.Form) reader[normalizer] {
	return always(simple(func(s string) string { return normalizeForm(f, s) }))
}

func readPrepend(raw json.RawMessage, at string, grown *growth) (normalizer, error) {
	var spec struct{ Prepend string }
	err := unmarshal(raw, at, &spec)
	return simple(func(s string) string {
		if s == "" {
			return s
		}
		return spec.Prepend + s
	}), cmp.Or(err, grown.by(float64(1+len(spec.Prepend)), at))
}

func readStripNormalizer(raw json.RawMessage, at string) (normalizer, error) {
	var spec struct {
		Left  bool `json:"strip_left"`
		Right bool `json:"strip_right"`
	}
	err := unmarshal(raw, at, &spec)
	return simple(func(s string) string {
		if spec.Left {
			s = strings.TrimLeftFunc(s, unicode.IsSpace)
		}
		if spec.Right {
			s = strings.TrimRightFunc(s, unicode.IsSpace)
		}
		return s
	}), err
}

// readReplace reads Replace, which is both a normalizer and a decoder; regex makes the finder of an expression.
func readReplace(raw json.RawMessage, at string, grown *growth, regex func(pattern, at string) (finder, error)) (
	normalizer, error) {
	var spec struct {
		Pattern json.RawMessage
		Content string
	}
	if err := unmarshal(raw, at, &spec); err != nil {
		return nil, err
	}
	find, text, err := readPattern(spec.Pattern, at+".pattern", regex)
	if err == nil {
		err = grown.by(float64(len(spec.Content))/float64(max(1, len(text))), at)
	}
	if err != nil {
		return nil, err
	}
	if find == nil {
		return simple(func(s string) string { return strings.ReplaceAll(s, text, spec.Content) }), nil
	}
	return func(s string, until deadline) string {
		var b strings.Builder
		find(s, until, func(part string, match bool) {
			if match {
				part = spec.Content
			}
			b.WriteString(part)
		})
		return b.String()
	}, nil
}

// lowercase maps each character by itself, as Rust's char::to_lowercase does.
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

// longestMarks is a number of combining marks in a row that golang.org/x/text always normalizes as Unicode says. From
// thirty decomposed marks on it inserts U+034F ("stream-safe text"), which Hugging Face does not.
const longestMarks = 12

// normalizeForm normalizes as Unicode says, with code of our own where golang.org/x/text differs from it.
func normalizeForm(form norm.Form, s string) string {
	if !needsCare(s) {
		return form.String(s)
	}
	runes := decompose(form, s)
	if form == norm.NFC || form == norm.NFKC {
		runes = recompose(runes)
	}
	return string(runes)
}

// needsCare reports whether s has a long run of marks, or a mark on a character beyond U+FFFF: golang.org/x/text looks
// only at the lower sixteen bits of those, so that U+E003E with U+0338 would become ≯.
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

// decompose replaces every character by its decomposition and orders the marks by class.
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

// join composes two characters into one, if Unicode has such a character.
func join(starter, mark rune) (rune, bool) {
	joined := []rune(norm.NFC.String(string(starter) + string(mark)))
	apart := norm.NFD.String(string(starter)) + norm.NFD.String(string(mark))
	return joined[0], len(joined) == 1 && norm.NFD.String(string(joined)) == apart
}

// recompose joins a starter with each following mark, unless a mark of the same or a higher class comes in between.
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
