package tokenizer

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A decoder turns tokens into the parts of a text; it may change the slice.
type decoder func(tokens []string) []string

// decoders read tokenizer.json's decoder; it is nil without a decoder. What lengthens a text counts in grown.
func decoders(grown *growth) stage[decoder] {
	return stage[decoder]{
		list: "decoders",
		join: func(steps []decoder) decoder {
			return func(tokens []string) []string {
				for _, step := range steps {
					if step != nil {
						tokens = step(tokens)
					}
				}
				return tokens
			}
		},
		want: "ByteLevel, ByteFallback, Fuse, Strip, Replace, Metaspace or Sequence",
		types: map[string]reader[decoder]{
			"ByteLevel": always[decoder](decodeBytes), "ByteFallback": always[decoder](decodeFallback),
			"Fuse":  always[decoder](func(tokens []string) []string { return []string{strings.Join(tokens, "")} }),
			"Strip": readStrip, "Metaspace": readMetaspaceDecoder,
			"Replace": func(raw json.RawMessage, at string) (decoder, error) {
				replace, err := readReplace(raw, at, grown, linearRegex)
				return mapEach(func(s string) string { return replace(s, deadline{}) }), err
			},
		},
	}
}

// narrow are escapes that mean ASCII in Go's regular expressions, but Unicode in tokenizer.json's.
var narrow = regexp.MustCompile(`\\[sSdDwWbB]`)

// linearRegex finds a regular expression's matches with Go's own package, whose time is linear: a decoder has no error.
func linearRegex(pattern, at string) (finder, error) {
	if err := checkRegex(pattern, at); err != nil {
		return nil, err
	}
	re, err := regexp.Compile("(?m)" + pattern)
	if err != nil || narrow.MatchString(pattern) {
		return nil, fmt.Errorf("%s: regular expression %q: want one without look-around, back-references, \\s, "+
			"\\d, \\w and \\b", at, pattern)
	}
	return func(s string, _ deadline, emit func(string, bool)) {
		done := 0
		for _, m := range re.FindAllStringIndex(s, -1) {
			if m[0] > done {
				emit(s[done:m[0]], false)
			}
			if m[1] > m[0] {
				emit(s[m[0]:m[1]], true)
			}
			done = m[1]
		}
		if done < len(s) {
			emit(s[done:], false)
		}
	}, nil
}

func mapEach(f func(string) string) decoder {
	return func(tokens []string) []string {
		for i, t := range tokens {
			tokens[i] = f(t)
		}
		return tokens
	}
}

// decodeBytes reads GPT-2's alphabet; a token with a character outside it is kept as it is.
func decodeBytes(tokens []string) []string {
	var out []byte
	for _, t := range tokens {
		if b, ok := fromAlphabet(t); ok {
			out = append(out, b...)
		} else {
			out = append(out, t...)
		}
	}
	return []string{decodeLossy(out)}
}

// decodeFallback joins byte tokens <0xNN> in a row into characters. If they are not UTF-8, each becomes U+FFFD.
func decodeFallback(tokens []string) []string {
	out := make([]string, 0, len(tokens))
	var held []byte
	flush := func() {
		if utf8.Valid(held) && len(held) > 0 {
			out = append(out, string(held))
		} else {
			for range held {
				out = append(out, "\uFFFD")
			}
		}
		held = held[:0]
	}
	for _, t := range tokens {
		if b, ok := fromByteToken(t); ok {
			held = append(held, b)
			continue
		}
		flush()
		out = append(out, t)
	}
	flush()
	return out
}

// fromByteToken reads <0xNN>; like Rust it takes digits of either case, and a plus sign before a single one.
func fromByteToken(t string) (byte, bool) {
	if len(t) != 6 || !strings.HasPrefix(t, "<0x") || t[5] != '>' {
		return 0, false
	}
	b, err := strconv.ParseUint(strings.TrimPrefix(t[3:5], "+"), 16, 8)
	return byte(b), err == nil
}

// readStrip reads Strip, which removes up to start and stop copies of a character from the ends of each token.
func readStrip(raw json.RawMessage, at string) (decoder, error) {
	var spec struct {
		Content     string
		Start, Stop uint
	}
	if err := unmarshal(raw, at, &spec); err != nil {
		return nil, err
	}
	if utf8.RuneCountInString(spec.Content) != 1 {
		return nil, fmt.Errorf("%s.content %q: want one character", at, spec.Content)
	}
	return mapEach(func(t string) string {
		for n := spec.Start; n > 0 && strings.HasPrefix(t, spec.Content); n-- {
			t = t[len(spec.Content):]
		}
		for n := spec.Stop; n > 0 && strings.HasSuffix(t, spec.Content); n-- {
			t = t[:len(t)-len(spec.Content)]
		}
		return t
	}), nil
}

// readMetaspaceDecoder reads Metaspace, which turns marks into spaces, or removes them from the first token.
func readMetaspaceDecoder(raw json.RawMessage, at string) (decoder, error) {
	m, scheme, err := readMetaspaceSpec(raw, at)
	if err != nil {
		return nil, err
	}
	return func(tokens []string) []string {
		for i, t := range tokens {
			space := " "
			if i == 0 && scheme != "never" {
				space = ""
			}
			tokens[i] = strings.ReplaceAll(t, m.Replacement, space)
		}
		return tokens
	}, nil
}
