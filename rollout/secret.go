package rollout

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A secret is a key without white space and control characters.
type secret string

// newSecret makes a secret of a key.
func newSecret(key string) secret {
	return secret(strings.Map(func(r rune) rune {
		if isGap(r) {
			return -1
		}
		return r
	}, key))
}

// hide replaces the secret in a text by ***, also where line ends or other white space break it, and where it is
// written with the escapes of JSON or of a URL. A text must not be cut before: half a key would stay.
func (s secret) hide(text string) string {
	if s == "" {
		return text
	}
	var out strings.Builder
	done := 0
	for at := 0; at < len(text); {
		begins := text[at] == s[0] || text[at] == '\\' || text[at] == '%'
		size, found := 0, false
		if begins { // most bytes do not
			size, found = s.at(text[at:])
		}
		if !found {
			at++
			continue
		}
		out.WriteString(text[done:at] + "***")
		at += size
		done = at
	}
	return out.String() + text[done:]
}

// at says whether a text begins with the secret, and how many bytes of it are the secret.
func (s secret) at(text string) (size int, found bool) {
	for _, n := range spelled(text, s[0]) {
		if rest, found := s[1:].behind(text[n:]); found {
			return n + rest, true
		}
	}
	return 0, false
}

// behind is like at, but skips what may break a key before the secret.
func (s secret) behind(text string) (size int, found bool) {
	for s != "" {
		if n, found := s.at(text[size:]); found {
			return size + n, true
		}
		n := gap(text[size:])
		if n == 0 {
			return 0, false
		}
		size += n
	}
	return size, true
}

// spelled gives the lengths of the spellings of a byte that the text begins with.
func spelled(text string, c byte) (sizes []int) {
	for _, read := range readings {
		if r, size := read(text); size > 0 && r == rune(c) {
			sizes = append(sizes, size)
		}
	}
	return sizes
}

// gap is the length of a character that the text begins with and that may break a key, or 0.
func gap(text string) int {
	for _, read := range readings {
		if r, size := read(text); size > 0 && isGap(r) {
			return size
		}
	}
	return 0
}

// readings give the first character of a text and its length: as it is, and as escapes of JSON, Go and URLs have it.
var readings = []func(text string) (r rune, size int){utf8.DecodeRuneInString, readEscape}

// readEscape reads %63, or \n, \r, \t, \u0063, \x63 and other characters behind one backslash or more: what was quoted
// twice has several.
func readEscape(text string) (r rune, size int) {
	if strings.HasPrefix(text, "%") {
		return readHex(text, 1, 2)
	}
	from := len(text) - len(strings.TrimLeft(text, `\`))
	switch {
	case from == 0 || from == len(text):
		return 0, 0
	case text[from] == 'u':
		return readHex(text, from+1, 4)
	case text[from] == 'x':
		return readHex(text, from+1, 2)
	case strings.IndexByte("nrt", text[from]) >= 0:
		return '\n', from + 1
	}
	r, size = utf8.DecodeRuneInString(text[from:])
	return r, from + size
}

func readHex(text string, from, digits int) (r rune, size int) {
	end := from + digits
	if len(text) < end {
		return 0, 0
	}
	n, err := strconv.ParseUint(text[from:end], 16, 32)
	if err != nil {
		return 0, 0
	}
	return rune(n), end
}

// isGap holds for characters that are not in keys and may separate the lines of one. A byte that is not UTF-8 counts,
// because messages leave it out.
func isGap(r rune) bool {
	return unicode.IsSpace(r) || unicode.In(r, unicode.C, unicode.Z) || r == utf8.RuneError
}
