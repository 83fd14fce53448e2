package jinja

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A chunk is a stretch of template: text, the expression of {{ }} or the statement of {% %}.
type chunk struct {
	kind chunkKind
	text string // of a text chunk
	toks []tok  // of a tag
	line int    // where it begins, from 1
}

type chunkKind int

const (
	text chunkKind = iota
	output
	statement
)

type scanner struct {
	src       string
	pos       int
	lineStart bool // the last thing consumed ended in a newline
	chunks    []chunk
}

// scan cuts src into chunks, comments left out, whitespace already trimmed.
func scan(src string) ([]chunk, error) {
	src = strings.ReplaceAll(strings.ReplaceAll(src, "\r\n", "\n"), "\r", "\n")
	s := &scanner{src: strings.TrimSuffix(src, "\n"), lineStart: true}
	for s.pos < len(s.src) {
		at := nextTag(s.src, s.pos)
		if at < 0 {
			s.addText(s.src[s.pos:])
			break
		}
		if err := s.tag(at); err != nil {
			return nil, fmt.Errorf("line %d: %w", s.line(at), err)
		}
	}
	return s.chunks, nil
}

// nextTag returns where the next {{, {% or {# stands, or -1.
func nextTag(src string, from int) int {
	for i := from; i+1 < len(src); i++ {
		if src[i] == '{' && strings.IndexByte("{%#", src[i+1]) >= 0 {
			return i
		}
	}
	return -1
}

func (s *scanner) line(at int) int { return 1 + strings.Count(s.src[:min(at, len(s.src))], "\n") }

func (s *scanner) addText(t string) {
	if t != "" {
		s.chunks = append(s.chunks, chunk{kind: text, text: t})
	}
}

// tag consumes the text before the tag at position at, and the tag.
func (s *scanner) tag(at int) error {
	before, kind := s.src[s.pos:at], s.src[at+1]
	sign := s.sign(at + 2)
	s.addText(s.trimBefore(before, sign, kind))
	s.pos = at + 2
	if sign != 0 {
		s.pos++
	}
	switch kind {
	case '#':
		return s.comment()
	case '{':
		return s.expression(output, "}}", at)
	}
	if isRaw(s.src[s.pos:]) {
		return s.raw()
	}
	return s.expression(statement, "%}", at)
}

// sign returns the - or + at position at, or 0.
func (s *scanner) sign(at int) byte {
	if at < len(s.src) && (s.src[at] == '-' || s.src[at] == '+') {
		return s.src[at]
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
func (s *scanner) comment() error {
	end := strings.Index(s.src[s.pos:], "#}")
	if end < 0 {
		return fmt.Errorf("comment {# is not closed: want #}")
	}
	sign := byte(0)
	if end > 0 {
		sign = s.sign(s.pos + end - 1)
	}
	s.pos += end
	s.close(2, sign, true)
	return nil
}

// close consumes a tag's end of n bytes and the whitespace that belongs to it: all with -, one newline where trim.
func (s *scanner) close(n int, sign byte, trim bool) {
	s.pos += n
	switch {
	case sign == '-':
		rest := strings.TrimLeftFunc(s.src[s.pos:], isSpace)
		s.pos = len(s.src) - len(rest)
	case sign == 0 && trim && strings.HasPrefix(s.src[s.pos:], "\n"):
		s.pos++
	}
	s.lineStart = s.src[s.pos-1] == '\n'
}

// expression consumes tokens up to the tag's end.
func (s *scanner) expression(kind chunkKind, end string, at int) error {
	lx := lexer{src: s.src, pos: s.pos}
	toks, sign, err := lx.until(end)
	if err != nil {
		return err
	}
	s.pos = lx.pos
	s.chunks = append(s.chunks, chunk{kind: kind, toks: toks, line: s.line(at)})
	s.close(len(end), sign, kind == statement)
	return nil
}

// isRaw says whether a {% tag goes on as "raw %}".
func isRaw(rest string) bool {
	rest, found := strings.CutPrefix(strings.TrimLeftFunc(rest, isSpace), "raw")
	rest = strings.TrimLeftFunc(rest, isSpace)
	return found && (strings.HasPrefix(rest, "%}") || strings.HasPrefix(rest, "-%}"))
}

// raw consumes {% raw %} ... {% endraw %}; what stands between is text.
func (s *scanner) raw() error {
	s.pos += strings.Index(s.src[s.pos:], "%}")
	s.close(2, s.sign(s.pos-1), false)
	for at := s.pos; ; at += 2 {
		next := strings.Index(s.src[at:], "{%")
		if next < 0 {
			return fmt.Errorf("{%% raw %%} is not closed: want {%% endraw %%}")
		}
		at += next
		if end, sign, ok := endRaw(s.src, at); ok {
			s.addText(s.trimBefore(s.src[s.pos:at], s.sign(at+2), '%'))
			s.pos = end
			s.close(2, sign, true)
			return nil
		}
	}
}

// endRaw says whether the tag at position at is {% endraw %}, where its %} stands and with which sign.
func endRaw(src string, at int) (end int, sign byte, ok bool) {
	rest := strings.TrimLeft(src[at+2:], "+-")
	rest, ok = strings.CutPrefix(strings.TrimLeftFunc(rest, isSpace), "endraw")
	if !ok {
		return 0, 0, false
	}
	rest = strings.TrimLeftFunc(rest, isSpace)
	if rest != "" && (rest[0] == '-' || rest[0] == '+') {
		sign, rest = rest[0], rest[1:]
	}
	return len(src) - len(rest), sign, strings.HasPrefix(rest, "%}")
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

type lexer struct {
	src   string
	pos   int
	depth int // of open brackets
	toks  []tok
}

const maxTokens = 10000

// until reads tokens up to the tag's end at bracket depth 0, and returns the sign before it.
func (l *lexer) until(end string) ([]tok, byte, error) {
	for l.pos < len(l.src) && len(l.toks) < maxTokens {
		rest := l.src[l.pos:]
		if l.depth == 0 {
			if strings.HasPrefix(rest, end) {
				return l.toks, 0, nil
			}
			if (rest[0] == '-' || rest[0] == '+') && strings.HasPrefix(rest[1:], end) {
				l.pos++
				return l.toks, rest[0], nil
			}
		}
		if err := l.next(rest); err != nil {
			return nil, 0, err
		}
	}
	if len(l.toks) >= maxTokens {
		return nil, 0, fmt.Errorf("tag of more than %d tokens", maxTokens)
	}
	return nil, 0, fmt.Errorf("tag is not closed: want %s", end)
}

// next reads one token or one space at the start of rest.
func (l *lexer) next(rest string) error {
	r, size := utf8.DecodeRuneInString(rest)
	switch {
	case isSpace(r):
		l.pos += size
	case r == '\'' || r == '"':
		return l.quoted(rest)
	case isDigit(rest[0]):
		l.number(rest)
	case isName(r):
		end := strings.IndexFunc(rest, func(r rune) bool { return !isName(r) })
		if end < 0 {
			end = len(rest)
		}
		l.add(tokName, rest[:end], end)
	default:
		return l.operator(rest)
	}
	return nil
}

func isDigit(b byte) bool { return b >= '0' && b <= '9' }

func isName(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) }

func (l *lexer) add(kind tokKind, text string, size int) {
	l.toks = append(l.toks, tok{kind, text})
	l.pos += size
}

var operators = []string{"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", ">", "<", "=", ".", ":", "|", ",", ";"}

func (l *lexer) operator(rest string) error {
	for _, op := range operators {
		if !strings.HasPrefix(rest, op) {
			continue
		}
		switch op {
		case "(", "[", "{":
			l.depth++
		case ")", "]", "}":
			l.depth--
		}
		if l.depth < 0 {
			return fmt.Errorf("%s closes nothing", op)
		}
		l.add(tokOp, op, len(op))
		return nil
	}
	r, _ := utf8.DecodeRuneInString(rest)
	return fmt.Errorf("unexpected character %q", r)
}

// number reads 12, 1_000, 1.5 or 2e-3; after a dot only an integer (x.0.1 is two look-ups).
func (l *lexer) number(rest string) {
	digits := func(from int) int {
		for from < len(rest) && (isDigit(rest[from]) || rest[from] == '_') {
			from++
		}
		return from
	}
	end, kind := digits(0), tokInt
	afterDot := len(l.toks) > 0 && l.toks[len(l.toks)-1] == tok{tokOp, "."}
	if !afterDot && end+1 < len(rest) && rest[end] == '.' && isDigit(rest[end+1]) {
		end, kind = digits(end+1), tokFloat
	}
	if !afterDot && end < len(rest) && (rest[end] == 'e' || rest[end] == 'E') {
		exp := end + 1
		if exp < len(rest) && (rest[exp] == '-' || rest[exp] == '+') {
			exp++
		}
		if exp < len(rest) && isDigit(rest[exp]) {
			end, kind = digits(exp), tokFloat
		}
	}
	l.add(kind, strings.ReplaceAll(rest[:end], "_", ""), end)
}

// quoted reads a string literal and its escapes.
func (l *lexer) quoted(rest string) error {
	for i := 1; i < len(rest); i++ {
		switch rest[i] {
		case '\\':
			i++
		case rest[0]:
			value, err := unescape(rest[1:i])
			if err != nil {
				return err
			}
			l.add(tokString, value, i+1)
			return nil
		}
	}
	return fmt.Errorf("string is not closed: want %c", rest[0])
}

var simpleEscapes = map[byte]string{
	'\n': "", '\\': "\\", '\'': "'", '"': "\"", 'a': "\a", 'b': "\b", 'f': "\f", 'n': "\n", 'r': "\r", 't': "\t", 'v': "\v",
}

// unescape reads the escapes of a Python string; an unknown one keeps its backslash.
func unescape(s string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		if simple, ok := simpleEscapes[s[i]]; ok {
			b.WriteString(simple)
		} else if value, size, err := codeEscape(s[i:]); err != nil {
			return "", err
		} else if size > 0 {
			b.WriteRune(value)
			i += size - 1
		} else {
			b.WriteByte('\\')
			b.WriteByte(s[i])
		}
	}
	return b.String(), nil
}

// codeEscape reads x41, u00e9, U0001f600 or octal 101 at the start of s.
func codeEscape(s string) (value rune, size int, err error) {
	widths := map[byte]int{'x': 2, 'u': 4, 'U': 8}
	width, base, from := widths[s[0]], rune(16), 1
	if width == 0 {
		width, base, from = 3, 8, 0
	}
	end := from
	for ; end < len(s) && end < from+width; end++ {
		digit := rune(strings.IndexByte("0123456789abcdef", lower(s[end])))
		if digit < 0 || digit >= base {
			break
		}
		value = value*base + digit
	}
	if base == 8 {
		return value, end, nil
	}
	if end-from < width || value < 0 || value > utf8.MaxRune {
		return 0, 0, fmt.Errorf(`string escape \%s: want %d hexadecimal digits of a character`, s[:end], width)
	}
	return value, end, nil
}

func lower(b byte) byte {
	if b >= 'A' && b <= 'Z' {
		return b + 'a' - 'A'
	}
	return b
}
