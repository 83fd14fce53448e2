package tokenizer

import (
	"strings"
	"unicode/utf8"
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
	if utf8.Valid(bytes) {
		return string(bytes)
	}
	var b strings.Builder
	for len(bytes) > 0 {
		r, size := utf8.DecodeRune(bytes)
		if r == utf8.RuneError && size == 1 {
			size = brokenSize(bytes)
		}
		b.WriteRune(r)
		bytes = bytes[size:]
	}
	return b.String()
}

// brokenSize is the length of the longest prefix of bytes that begins a valid character, at least 1.
func brokenSize(bytes []byte) int {
	lead, low, high, size := bytes[0], byte(0x80), byte(0xbf), 1
	switch {
	case lead >= 0xc2 && lead <= 0xdf:
		size = 2
	case lead >= 0xe0 && lead <= 0xef:
		size = 3
	case lead >= 0xf0 && lead <= 0xf4:
		size = 4
	}
	switch lead { // the second byte's range is narrower
	case 0xe0:
		low = 0xa0
	case 0xed:
		high = 0x9f
	case 0xf0:
		low = 0x90
	case 0xf4:
		high = 0x8f
	}
	n := 1
	for n < size && n < len(bytes) && bytes[n] >= low && bytes[n] <= high {
		n, low, high = n+1, 0x80, 0xbf
	}
	return n
}
