package remote

import (
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A secret is a key without white space and control characters.
type secret string

func newSecret(key string) secret { return secret(strings.Map(dropGap, key)) }

// hide replaces the secret in a text by ***. A text that has it in pieces, between which are line ends and the like, or
// written with the escapes of JSON or of a URL, becomes *** as a whole. A text must not be cut before: half a key would
// stay.
func (s secret) hide(text string) string {
	if s == "" {
		return text
	}
	text = strings.ReplaceAll(text, string(s), "***")
	if len(s) >= shortestSecret && strings.Contains(unescape(text), unescape(string(s))) {
		return "***"
	}
	return text
}

// escaped are characters that were quoted, perhaps more than once, and so have several backslashes.
var escaped = regexp.MustCompile(`(?:%|\\+x|\\+u00)([0-9A-Fa-f]{2})|\\+u[0-9A-Fa-f]{4}|\\+[nrt]?`)

// unescape gives a text's characters as they are, without those that may break a key.
func unescape(text string) string {
	text = escaped.ReplaceAllStringFunc(text, func(e string) string {
		if hex := escaped.FindStringSubmatch(e)[1]; hex != "" {
			n, _ := strconv.ParseUint(hex, 16, 8) // the pattern has two digits
			return string(rune(n))
		}
		return ""
	})
	return strings.Map(dropGap, text)
}

// dropGap drops characters that are not in keys and may separate the lines of one. A byte that is not UTF-8 counts,
// because messages leave it out.
func dropGap(r rune) rune {
	if unicode.IsSpace(r) || unicode.In(r, unicode.C, unicode.Z) || r == utf8.RuneError {
		return -1
	}
	return r
}
