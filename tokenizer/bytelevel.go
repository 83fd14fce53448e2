package tokenizer

import (
	"strings"

	"golang.org/x/text/encoding/unicode"
)

// GPT-2's alphabet has a printable character for every byte, so that merges can be written as text. The printable bytes
// of Latin-1 are their own characters; the others have those from U+0100 on.
var (
	byteChars [256]rune
	charBytes = map[rune]byte{}
)

func init() {
	next := rune(0x100)
	for b := range 256 {
		r := rune(b)
		if b < '!' || b > '~' && b < 0xa1 || b == 0xad {
			r = next
			next++
		}
		byteChars[b], charBytes[r] = r, byte(b)
	}
}

// toAlphabet writes the bytes of s in GPT-2's alphabet.
func toAlphabet(s string) string {
	var b strings.Builder
	b.Grow(2 * len(s))
	for i := range len(s) {
		b.WriteRune(byteChars[s[i]])
	}
	return b.String()
}

// fromAlphabet is the inverse; ok is false if s has a character outside the alphabet.
func fromAlphabet(s string) (bytes []byte, ok bool) {
	bytes = make([]byte, 0, len(s))
	for _, r := range s {
		b, ok := charBytes[r]
		if !ok {
			return nil, false
		}
		bytes = append(bytes, b)
	}
	return bytes, true
}

// decodeLossy reads bytes as UTF-8. As in Rust and browsers, each maximal part of a broken character becomes U+FFFD.
func decodeLossy(bytes []byte) string {
	text, _ := unicode.UTF8.NewDecoder().Bytes(bytes) // it has no errors
	return string(text)
}
