package data

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// What the JSON decoder changes in silence.
const (
	duplicateKey  = "an object has a key twice: the last value counts"
	loneSurrogate = `half a character such as \ud800: it is read as U+FFFD`
)

// oddities lists what decoding a JSON text would change in silence. A text that is not JSON may have any.
func oddities(text []byte) (odd []string) {
	twice, lone := false, false
	var objects []map[string]bool // the keys of each open object; nil for a list
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '{':
			objects = append(objects, map[string]bool{})
		case '[':
			objects = append(objects, nil)
		case '}', ']':
			objects = objects[:max(0, len(objects)-1)]
		case '"':
			end := i + 1 + stringEnd(text[i+1:])
			quoted := text[i:min(end+1, len(text))]
			lone = lone || hasLoneSurrogate(quoted)
			after := bytes.TrimLeft(text[min(end+1, len(text)):], " \t\r\n")
			if n := len(objects); n > 0 && objects[n-1] != nil && len(after) > 0 && after[0] == ':' {
				key := keyText(quoted)
				twice = twice || objects[n-1][key]
				objects[n-1][key] = true
			}
			i = end
		}
	}
	if twice {
		odd = append(odd, duplicateKey)
	}
	if lone {
		odd = append(odd, loneSurrogate)
	}
	return odd
}

// stringEnd is the offset of the quote that ends a string.
func stringEnd(text []byte) int {
	for i := 0; i < len(text); i++ {
		n := bytes.IndexAny(text[i:], `"\`)
		if n < 0 {
			break
		}
		if i += n; text[i] == '"' {
			return i
		}
		i++ // the escaped character
	}
	return len(text)
}

func keyText(quoted []byte) string {
	if bytes.IndexByte(quoted, '\\') >= 0 {
		var key string
		if json.Unmarshal(quoted, &key) == nil {
			return key
		}
	}
	return string(bytes.Trim(quoted, `"`))
}

// hasLoneSurrogate finds a \ud800 to \udbff without a \udc00 to \udfff behind it, or one of these alone.
func hasLoneSurrogate(s []byte) bool {
	for high := false; ; {
		i := bytes.IndexByte(s, '\\')
		if i < 0 || i+1 >= len(s) {
			return high
		}
		if high && i > 0 {
			return true
		}
		code := uint64(0)
		if s[i+1] == 'u' && i+6 <= len(s) {
			code, _ = strconv.ParseUint(string(s[i+2:i+6]), 16, 16)
		}
		low := code >= 0xdc00 && code <= 0xdfff
		if high != low {
			return true
		}
		high = code >= 0xd800 && code <= 0xdbff
		s = s[i+2:]
		if code > 0 {
			s = s[4:]
		}
	}
}
