// Package secret keeps keys and passwords out of messages and files, also where a server repeats them.
package secret

import (
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A Key is a key without white space and control characters.
type Key string

// New makes a key of a text.
func New(key string) Key { return Key(strings.Map(dropGap, key)) }

// Shortest is the least length of a real key: for servers without keys users often set a word such as EMPTY.
const Shortest = 16

// users are what an address has before its host. A password may have signs that end a host, but a port has digits.
var (
	users     = regexp.MustCompile(`//[^/?#\s"]*@`)
	passwords = regexp.MustCompile(`//[^/?#\s"@:]+:[^\s"@]*@`)
	ports     = regexp.MustCompile(`^//[^:]*:\d*[/?#]`)
)

// HideUsers replaces the name and the password in each address of a text by ….
func HideUsers(text string) string {
	text = users.ReplaceAllString(text, "//…@")
	return passwords.ReplaceAllStringFunc(text, func(found string) string {
		if ports.MatchString(found) {
			return found
		}
		return "//…@"
	})
}

// Hide replaces the secret in a text by ***. A text that has it in pieces, between which are line ends and the like, or
// written with the escapes of JSON or of a URL, becomes *** as a whole. A text must not be cut before: half a key would
// stay.
func (s Key) Hide(text string) string {
	if s == "" {
		return text
	}
	text = strings.ReplaceAll(text, string(s), "***")
	if len(s) >= Shortest && strings.Contains(unescape(text), unescape(string(s))) {
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
