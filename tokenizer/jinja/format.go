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

// A spec is how Python writes a value: what is behind a %.
type spec struct {
	fill            string
	align           rune // < > or =: between the sign and the digits
	sign            string
	alternate       bool // 0x before hexadecimal digits, a point in every float
	width, decimals int  // -1: none are given
	verb            string
}

var percents = regexp.MustCompile(`(?s)%(?:\(([^)]*)\))?([-+ 0#]*)(\*|\d*)(?:(\.)(\*|\d*))?[hlL]?(.?)`)

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
	if base := map[string]int{"o": 8, "d": 10, "x": 16, "X": 16}[s.verb]; base > 0 {
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
	}
	if s.align == '=' {
		return sign + prefix + pad(digits, s.width-len(sign+prefix), '>', s.fill)
	}
	return pad(sign+prefix+digits, s.width, s.align, s.fill)
}

// float writes a float by the verb.
func (s spec) float(f float64) string {
	verb, decimals := strings.ToLower(s.verb), s.decimals
	if decimals < 0 {
		decimals = 6
	}
	switch {
	case math.IsInf(f, 0) || math.IsNaN(f):
		return reprFloat(f)
	case verb == "e" || verb == "f":
		return strconv.FormatFloat(f, verb[0], decimals, 64)
	}
	decimals = max(1, decimals)
	text := strconv.FormatFloat(f, 'e', decimals-1, 64)
	mantissa, exponent, _ := strings.Cut(text, "e")
	power, _ := strconv.Atoi(exponent)
	if power >= -4 && power < decimals {
		mantissa, exponent = strconv.FormatFloat(f, 'f', max(0, decimals-1-power), 64), ""
	} else {
		exponent = "e" + exponent
	}
	if strings.Contains(mantissa, ".") && !s.alternate {
		mantissa = strings.TrimRight(strings.TrimRight(mantissa, "0"), ".")
	}
	return mantissa + exponent
}
