package jinja

import (
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A chunk is a stretch of template: text, the expression of {{ }} or the statement of {% %}.
type chunk struct {
	place // of its beginning
	kind  chunkKind
	text  string // of a text chunk
	toks  []tok  // of a tag
}

type chunkKind int

const (
	text chunkKind = iota
	output
	tag
)

type scanner struct {
	src       string
	pos       int
	place     *place // of the tag that is read
	lineStart bool   // the last thing consumed ended in a newline
	chunks    []chunk
	toks      []tok // of the tag that is read
}

// scan cuts src into chunks, comments left out, whitespace already trimmed. at becomes the place of a fault.
func scan(src string, at *place) []chunk {
	src = strings.ReplaceAll(strings.ReplaceAll(src, "\r\n", "\n"), "\r", "\n")
	s := &scanner{src: strings.TrimSuffix(src, "\n"), place: at, lineStart: true}
	at.line = 1
	for from := 0; s.pos < len(s.src); {
		next := s.nextTag()
		at.line += strings.Count(s.src[from:next], "\n")
		if from = next; next == len(s.src) {
			s.addText(s.src[s.pos:])
			break
		}
		s.tag(next)
	}
	return s.chunks
}

// nextTag returns where the next {{, {% or {# is, or the end.
func (s *scanner) nextTag() int {
	for i := s.pos; i+1 < len(s.src); i++ {
		if s.src[i] == '{' && strings.IndexByte("{%#", s.src[i+1]) >= 0 {
			return i
		}
	}
	return len(s.src)
}

func (s *scanner) addText(t string) {
	if t != "" {
		s.chunks = append(s.chunks, chunk{kind: text, text: t, place: *s.place})
	}
}

// tag consumes the text before the tag at position at, and the tag.
func (s *scanner) tag(at int) {
	before, kind := s.src[s.pos:at], s.src[at+1]
	s.pos = at + 2
	sign := s.sign()
	s.addText(s.trimBefore(before, sign, kind))
	switch {
	case kind == '#':
		s.comment()
	case kind == '{':
		s.expression(output, "}}")
	case isRaw(s.src[s.pos:]):
		s.raw()
	default:
		s.expression(tag, "%}")
	}
}

// sign consumes a - or +, and is 0 without one.
func (s *scanner) sign() byte {
	if s.pos < len(s.src) && (s.src[s.pos] == '-' || s.src[s.pos] == '+') {
		s.pos++
		return s.src[s.pos-1]
	}
	return 0
}

// trimBefore applies the tag's opening sign, or lstrip_blocks, to the text before it.
func (s *scanner) trimBefore(before string, sign, kind byte) string {
	if sign == '-' {
		return strings.TrimRightFunc(before, isSpace)
	}
	if sign == '+' || kind == '{' {
		return before
	}
	begin := strings.LastIndexByte(before, '\n') + 1
	if (begin > 0 || s.lineStart) && strings.TrimFunc(before[begin:], isSpace) == "" {
		return before[:begin]
	}
	return before
}

// comment consumes a comment's text and its end.
func (s *scanner) comment() {
	end := strings.Index(s.src[s.pos:], "#}")
	if end < 0 {
		panic(faultf("comment {# is not closed: want #}"))
	}
	s.pos = max(s.pos, s.pos+end-1)
	sign := s.sign()
	s.pos = strings.Index(s.src[s.pos:], "#}") + s.pos
	s.close(sign, true)
}

// close consumes a tag's end and the whitespace that belongs to it: all with -, one newline where trim.
func (s *scanner) close(sign byte, trim bool) {
	s.pos += 2
	switch {
	case sign == '-':
		s.pos = len(s.src) - len(strings.TrimLeftFunc(s.src[s.pos:], isSpace))
	case sign == 0 && trim && strings.HasPrefix(s.src[s.pos:], "\n"):
		s.pos++
	}
	s.lineStart = s.src[s.pos-1] == '\n'
}

// isRaw says whether a {% tag continues as "raw %}".
func isRaw(rest string) bool {
	rest, found := strings.CutPrefix(strings.TrimLeftFunc(rest, isSpace), "raw")
	rest = strings.TrimLeftFunc(rest, isSpace)
	return found && (strings.HasPrefix(rest, "%}") || strings.HasPrefix(rest, "-%}"))
}

// raw consumes {% raw %} ... {% endraw %}; what is between is text.
func (s *scanner) raw() {
	s.pos += strings.IndexAny(s.src[s.pos:], "-%")
	s.close(s.sign(), false)
	begin := s.pos
	for {
		next := strings.Index(s.src[s.pos:], "{%")
		if next < 0 {
			panic(faultf("{%% raw %%} is not closed: want {%% endraw %%}"))
		}
		text := s.src[begin : s.pos+next]
		s.pos += next + 2
		sign := s.sign()
		if !s.word("endraw") {
			continue
		}
		if end := s.sign(); strings.HasPrefix(s.src[s.pos:], "%}") {
			s.addText(s.trimBefore(text, sign, '%'))
			s.close(end, true)
			return
		}
	}
}

// word consumes a word with the whitespace around it.
func (s *scanner) word(want string) bool {
	rest, ok := strings.CutPrefix(strings.TrimLeftFunc(s.src[s.pos:], isSpace), want)
	if ok {
		s.pos = len(s.src) - len(strings.TrimLeftFunc(rest, isSpace))
	}
	return ok
}

// isSpace is Python's str.isspace.
func isSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

// A tok is one token of a tag.
type tok struct {
	kind tokKind
	text string // of a string its value, of everything else its spelling
}

type tokKind int

const (
	tokEnd tokKind = iota
	tokName
	tokInt
	tokFloat
	tokString
	tokOp
)

const maxTokens = 10000

// expression consumes tokens up to the tag's end, which is outside of brackets.
func (s *scanner) expression(kind chunkKind, end string) {
	s.toks = nil
	for open := 0; s.pos < len(s.src); open += s.token() {
		rest := s.src[s.pos:]
		if open < 0 {
			panic(faultf("%s closes nothing", s.toks[len(s.toks)-1].text))
		}
		if len(s.toks) >= maxTokens {
			panic(faultf("tag of more than %d tokens", maxTokens))
		}
		signed := (rest[0] == '-' || rest[0] == '+') && strings.HasPrefix(rest[1:], end)
		if open == 0 && (signed || strings.HasPrefix(rest, end)) {
			s.chunks = append(s.chunks, chunk{kind: kind, toks: s.toks, place: *s.place})
			s.close(s.sign(), kind == tag)
			return
		}
	}
	panic(faultf("tag is not closed: want %s", end))
}

var (
	numeral = regexp.MustCompile(`^[0-9_]+(\.[0-9][0-9_]*)?([eE][-+]?[0-9][0-9_]*)?`)
	// tokens finds an integer, a name, a string or an operator.
	tokens = regexp.MustCompile(`(?s)^(?:([0-9][0-9_]*)|([_\pL\p{Nd}]+)|('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|` +
		`//|\*\*|==|!=|>=|<=|[-+/*%~()[\]{}><=.:|,;])`)
)

// token consumes one token or one space, and is 1 for an opening bracket, -1 for a closing one.
func (s *scanner) token() int {
	rest := s.src[s.pos:]
	r, size := utf8.DecodeRuneInString(rest)
	if isSpace(r) {
		s.pos += size
		return 0
	}
	found := tokens.FindStringSubmatch(rest)
	switch {
	case found == nil && (r == '\'' || r == '"'):
		panic(faultf("string is not closed: want %c", r))
	case found == nil:
		panic(faultf("unexpected character %q", r))
	case found[1] != "":
		s.number(found[1], numeral.FindString(rest))
		return 0
	}
	t := tok{tokOp, found[0]}
	if found[2] != "" {
		t.kind = tokName
	} else if found[3] != "" {
		t = tok{tokString, unescape(found[0][1 : len(found[0])-1])}
	}
	s.toks = append(s.toks, t)
	s.pos += len(found[0])
	if t.kind != tokOp {
		return 0
	}
	return btoi(strings.Contains("([{", t.text)) - btoi(strings.Contains(")]}", t.text))
}

// number reads 12, 1_000, 1.5 or 2e-3; after a dot only an integer (x.0.1 is two look-ups).
func (s *scanner) number(whole, all string) {
	t := tok{tokInt, whole}
	afterDot := len(s.toks) > 0 && s.toks[len(s.toks)-1] == tok{tokOp, "."}
	if all != whole && !afterDot {
		t = tok{tokFloat, all}
	}
	s.pos += len(t.text)
	t.text = strings.ReplaceAll(t.text, "_", "")
	s.toks = append(s.toks, t)
}

var (
	escapes = regexp.MustCompile(`(?s)\\([0-7]{1,3}|x[[:xdigit:]]{0,2}|u[[:xdigit:]]{0,4}|U[[:xdigit:]]{0,8}|.)`)

	simpleEscapes = map[string]string{
		"\n": "", "\\": "\\", "'": "'", "\"": "\"",
		"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
	}
	hexDigits = map[byte]int{'x': 2, 'u': 4, 'U': 8}
)

// unescape reads the escapes of a Python string, such as \n, \x41, \u00e9, \U0001f600 and octal \101; an unknown one
// keeps its backslash.
func unescape(s string) string {
	return escapes.ReplaceAllStringFunc(s, func(escape string) string {
		code := escape[1:]
		if simple, ok := simpleEscapes[code]; ok {
			return simple
		}
		want, base, digits := hexDigits[code[0]], 8, code
		if want > 0 {
			base, digits = 16, code[1:]
		}
		value, err := strconv.ParseUint(digits, base, 32)
		switch {
		case want > 0 && (len(digits) < want || value > utf8.MaxRune):
			panic(faultf(`string escape \%s: want %d hexadecimal digits of a character`, code, want))
		case err != nil:
			return escape
		}
		return string(rune(value))
	})
}
