package jinja

import (
	"cmp"
	"math"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A spec is how Python writes a value: what is behind a % or the colon of a {}.
type spec struct {
	fill            string
	align           rune // < > ^ or =: between the sign and the digits; 0: none is given
	sign            string
	alternate       bool // 0x before hexadecimal digits, a point in every float
	width, decimals int  // -1: none are given
	comma, verb     string
}

var (
	percents = regexp.MustCompile(`(?s)%(?:\(([^)]*)\))?([-+ 0#]*)(\*|\d*)(?:(\.)(\*|\d*))?[hlL]?(.?)`)
	specs    = regexp.MustCompile(`(?s)^(?:(.)?([<>=^]))?([-+ ])?(#)?(0)?(\d+)?([,_])?` +
		`(?:\.(\d+))?([bcdeEfFgGnosxX%])?$`)
)

// percent is text % args.
func (r *run) percent(format, args any) any {
	text, _ := asText(format)
	plain, isTuple := args.(tuple)
	names, isDict := args.(Dict)
	if !isTuple {
		plain = tuple{args}
	}
	r.step(passSteps * strings.Count(text, "%"))
	used := 0
	next := func() any {
		if used++; used > len(plain) {
			panic(faultf("found %d values, want one for each %% of the text", len(plain)))
		}
		return plain[used-1]
	}
	out := r.text(func(w *writer) {
		from := 0
		for _, m := range percents.FindAllStringSubmatchIndex(text, -1) {
			part := func(i int) string { return text[max(0, m[2*i]):max(0, m[2*i+1])] }
			w.emit(text[from:m[0]])
			from = m[1]
			s := percentSpec(part(2), part(6))

			if s.width = r.measure(part(3), 0, next); s.width < 0 {
				s.width, s.align = -s.width, '<'
			}
			if part(4) != "" {
				s.decimals = r.measure(cmp.Or(part(5), "0"), 0, next)
			}
			switch {
			case s.verb == "%":
				w.emit("%")
			case m[2] >= 0 && !isDict:
				panic(faultf("%%(%s) of %s: want a dict", part(1), kindOf(args)))
			case m[2] >= 0:
				i := r.find(names, part(1))
				if i < 0 {
					panic(faultf("%%(%s): the dict has no such key", part(1)))
				}
				used = len(plain)
				w.emit(r.converted(format, names[i].Value, s))
			default:
				w.emit(r.converted(format, next(), s))
			}
		}
		w.emit(text[from:])
	})
	if used < len(plain) && !isDict && !(args == nil || is[[]any](args) || isRange(args)) {
		panic(faultf("found %d values, want one for each %% of the text", len(plain)))
	}
	return like(format, out)
}

// measure is a width or a number of decimals: digits, or * for the next value.
func (r *run) measure(text string, otherwise int, next func() any) int {
	n := any(otherwise)
	if text == "*" {
		n = next()
	} else if text != "" {
		n, _ = readInt(text, 10)
	}
	if !isWhole(n) || math.Abs(float(n)) > maxText {
		panic(faultf("width %s: want an int up to %d", r.repr(n), maxText))
	}
	r.fits(1, max(toInt(n), -toInt(n)))
	return toInt(n)
}

func percentSpec(flags, verb string) spec {
	s := spec{fill: " ", align: '>', decimals: -1, verb: verb, alternate: strings.Contains(flags, "#")}
	for _, sign := range []string{"+", " "} {
		if s.sign == "" && strings.Contains(flags, sign) {
			s.sign = sign
		}
	}
	if strings.Contains(flags, "0") && !strings.Contains("sracs%", verb) {
		s.fill, s.align = "0", '='
	}
	if strings.Contains(flags, "-") {
		s.fill, s.align = " ", '<'
	}
	return s
}

// converted writes a value behind a %.
func (r *run) converted(format, v any, s spec) string {
	text := ""
	switch _, whole, ok := toNumber(v); s.verb {
	case "s", "r", "a":
		if text = r.str(v); s.verb != "s" {
			text = r.repr(v)
		}
		if s.verb == "a" {
			text = r.ascii(text)
		}
		if is[markup](format) {
			text = string(escape(r, like(v, text)))
		}
	case "c":
		if text, ok = asText(v); whole && !ok && toInt(v) >= 0 && toInt(v) <= utf8.MaxRune {
			text, ok = string(rune(toInt(v))), true
		}
		if !ok || utf8.RuneCountInString(text) != 1 {
			panic(faultf("%%c of %s: want an int or one character", kindOf(v)))
		}
	case "d", "i", "u":
		if !ok || math.IsInf(toFloat(v), 0) && !whole || isNaN(v) {
			panic(faultf("%%%s of %s: want a number", s.verb, kindOf(v)))
		}
		s.verb = "d"
		return r.numeral(narrow(truncated(v)), s)
	case "x", "X", "o":
		if !whole {
			panic(faultf("%%%s of %s: want an int", s.verb, kindOf(v)))
		}
		return r.numeral(v, s)
	case "e", "E", "f", "F", "g", "G":
		if !ok {
			panic(faultf("%%%s of %s: want a number", s.verb, kindOf(v)))
		}
		return r.numeral(float(v), s)
	default:
		panic(faultf("%%%s: want one of s r a c d i u x X o e E f F g G", s.verb))
	}
	if s.decimals >= 0 {
		text = string(pick(r, r.runes(text), []any{0, s.decimals}))
	}
	return pad(text, s.width, s.align, s.fill)
}

// ascii escapes what is not ASCII.
func (r *run) ascii(s string) string {
	r.fits(10, len(s))
	var b strings.Builder
	for _, c := range s {
		b.WriteString(escapeRune(c, c > 0x7e))
	}
	return b.String()
}

func toFloat(v any) float64 { f, _, _ := toNumber(v); return f }

// truncated is the whole part of a number.
func truncated(v any) *big.Int {
	if f, ok := v.(float64); ok {
		n, _ := big.NewFloat(f).Int(nil)
		return n
	}
	return wide(v)
}

// numeral writes a number.
func (r *run) numeral(v any, s spec) string {
	digits, prefix := "", ""
	r.fits(1, max(0, s.decimals))
	if base := map[string]int{"b": 2, "o": 8, "d": 10, "n": 10, "x": 16, "X": 16}[s.verb]; base > 0 {
		if digits = wide(v).Text(base); base == 10 {
			digits = reprInt(v)
		}
		if s.alternate && base != 10 {
			prefix = "0" + s.verb
		}
	} else {
		digits = s.float(float(v))
	}
	if s.verb == "X" || s.verb == "E" || s.verb == "F" || s.verb == "G" {
		digits, prefix = strings.ToUpper(digits), strings.ToUpper(prefix)
	}
	negative := strings.HasPrefix(digits, "-")
	digits = strings.TrimPrefix(digits, "-")
	if whole := s.verb == "d" || s.verb == "x" || s.verb == "X" || s.verb == "o"; whole && s.decimals > len(digits) {
		digits = strings.Repeat("0", s.decimals-len(digits)) + digits
	}
	sign := s.sign
	if negative {
		sign = "-"
	} else if sign == "-" {
		sign = ""
	}
	digits = grouped(digits, s.comma)
	if s.align == '=' {
		return sign + prefix + pad(digits, s.width-len(sign+prefix), '>', s.fill)
	}
	return pad(sign+prefix+digits, s.width, s.align, s.fill)
}

// grouped puts a comma between thousands.
func grouped(digits, comma string) string {
	if comma == "" {
		return digits
	}
	end := strings.IndexFunc(digits, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(digits)
	}
	for at := end - 3; at > 0; at -= 3 {
		digits = digits[:at] + comma + digits[at:]
	}
	return digits
}

// float writes a float by the verb.
func (s spec) float(f float64) string {
	verb, decimals := strings.ToLower(s.verb), s.decimals
	if decimals < 0 {
		decimals = 6
	}
	switch {
	case math.IsInf(f, 0) || math.IsNaN(f):
		return reprFloat(f) + strings.Repeat("%", btoi(verb == "%"))
	case verb == "%":
		return strconv.FormatFloat(f*100, 'f', decimals, 64) + "%"
	case verb == "e" || verb == "f":
		return strconv.FormatFloat(f, verb[0], decimals, 64)
	case verb == "" && s.decimals < 0:
		return reprFloat(f)
	}
	decimals = max(1, decimals)
	text := strconv.FormatFloat(f, 'e', decimals-1, 64)
	mantissa, exponent, _ := strings.Cut(text, "e")
	power, _ := strconv.Atoi(exponent)
	if power >= -4 && power < decimals-btoi(verb == "") {
		mantissa, exponent = strconv.FormatFloat(f, 'f', max(0, decimals-1-power), 64), ""
	} else {
		exponent = "e" + exponent
	}
	if strings.Contains(mantissa, ".") && !s.alternate {
		mantissa = strings.TrimRight(strings.TrimRight(mantissa, "0"), ".")
	}
	if verb == "" && exponent == "" && !strings.Contains(mantissa, ".") {
		mantissa += ".0"
	}
	return mantissa + exponent
}

// format is str.format.
func (c *call) format(args []any, kwargs Dict) any {
	return c.text(func(w *writer) { c.fill(w, c.self.(string), args, kwargs, new(int), 2) })
}

// fill writes a text with {} in it; auto counts the {} without a name. deep is how deep {} may be in {}.
func (c *call) fill(w *writer, text string, args []any, kwargs Dict, auto *int, deep int) {
	for text != "" {
		c.step(passSteps)
		at := strings.IndexAny(text, "{}")
		if at < 0 {
			at = len(text)
		}
		w.emit(text[:at])
		if text = text[at:]; text == "" {
			return
		}
		if strings.HasPrefix(text, "{{") || strings.HasPrefix(text, "}}") {
			w.emit(text[:1])
			text = text[2:]
			continue
		}
		field, rest := cutField(text)
		if deep == 0 {
			panic(faultf("format: {} nested too deep"))
		}
		w.emit(c.field(field, args, kwargs, auto, deep))
		text = rest
	}
}

// cutField takes the {} at the beginning of a text.
func cutField(text string) (field, rest string) {
	depth := 0
	for i, r := range text {
		depth += btoi(r == '{') - btoi(r == '}')
		if depth <= 0 {
			if text[0] == '}' {
				break
			}
			return text[1:i], text[i+1:]
		}
	}
	panic(faultf("format: found a single %c", text[0]))
}

var fields = regexp.MustCompile(`(?s)^([^!:.\[]*)((?:\.[^!:.\[]+|\[[^\]]+\])*)(?:!([rsa]))?(?::(.*))?$`)

// field writes what is between { and }.
func (c *call) field(field string, args []any, kwargs Dict, auto *int, deep int) string {
	m := fields.FindStringSubmatch(field)
	if m == nil {
		panic(faultf("format: {%s}: want a name or number with .name or [key], !r or !s, and a format", field))
	}
	v := c.given(m[1], args, kwargs, auto)
	for rest := m[2]; rest != ""; {
		end := strings.IndexAny(rest[1:], ".[") + 1
		if end == 0 {
			end = len(rest)
		}
		name := strings.TrimSuffix(rest[1:end], "]")
		if n, ok := readInt(name, 10); ok && rest[0] == '[' {
			v = c.item(v, n)
		} else if rest[0] == '[' {
			v = c.item(v, name)
		} else {
			v = c.attribute(v, name)
		}
		rest = rest[end:]
	}
	how := c.run.text(func(w *writer) { c.fill(w, m[4], args, kwargs, auto, deep-1) })
	switch m[3] {
	case "r":
		v = c.repr(v)
	case "a":
		v = c.ascii(c.repr(v))
	case "s":
		v = c.str(v)
	}
	out := c.formatted(v, how)
	if c.safe {
		return string(escape(c.run, like(v, out)))
	}
	return out
}

// given is the argument of a name, a number or nothing.
func (c *call) given(name string, args []any, kwargs Dict, auto *int) any {
	n, err := strconv.Atoi(name)
	if name == "" {
		n, err = *auto, nil
		*auto++
	}
	v, ok := kwargs.get(name)
	if err == nil {
		if ok = n >= 0 && n < len(args); ok {
			v = args[n]
		}
	}
	if !ok {
		panic(faultf("format: {%s} has no value", name))
	}
	return v
}

// formatted is Python's format(v, how).
func (c *call) formatted(v any, how string) string {
	m := specs.FindStringSubmatch(how)
	_, whole, isNumber := toNumber(v)
	text, isText := asText(v)
	switch {
	case how == "":
		return c.str(v)
	case m == nil || !isNumber && !isText:
		panic(faultf("format: %q of %s: not supported", how, kindOf(v)))
	}
	s := spec{fill: cmp.Or(m[1], " "), sign: m[3], alternate: m[4] != "", comma: m[7], decimals: -1, verb: m[9],
		align: '<'}
	s.width = c.measure(m[6], 0, nil)
	if m[8] != "" {
		s.decimals = c.measure(m[8], 0, nil)
	}
	if isNumber {
		s.align = '>'
	}
	if m[5] != "" && m[2] == "" {
		s.fill = "0"
		if isNumber {
			s.align = '='
		}
	}
	if m[2] != "" {
		s.align = rune(m[2][0])
	}
	switch {
	case isText && (s.align == '=' || s.sign != "" || s.comma != "" || s.alternate || s.verb != "" && s.verb != "s"),
		isNumber && (s.verb == "s" || s.verb == "c" || s.comma != "" && s.fill == "0"),
		whole && strings.Contains("bdoxX", s.verb) && s.decimals >= 0 && s.verb != "",
		!whole && isNumber && s.verb != "" && strings.Contains("bdoxX", s.verb):
		panic(faultf("format: %q of %s: not supported", how, kindOf(v)))
	case isText:
		if s.decimals >= 0 {
			text = string(pick(c.run, c.runes(text), []any{0, s.decimals}))
		}
		return pad(text, s.width, s.align, s.fill)
	case whole && s.verb == "" && s.decimals < 0:
		s.verb = "d"
	case !whole && s.verb == "n":
		s.verb = "g"
	}
	return c.numeral(v, s)
}
