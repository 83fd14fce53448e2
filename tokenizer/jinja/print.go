package jinja

import (
	"cmp"
	"fmt"
	"math"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// str is Python's str(v); undefined is empty.
func (r *run) str(v any) string {
	if s, ok := asText(v); ok {
		return s
	}
	return r.text(func(w *writer) { r.print(w, v) })
}

func (r *run) repr(v any) string { return r.text(func(w *writer) { w.repr(v, 0) }) }

// print writes str(v).
func (r *run) print(w *writer, v any) {
	if s, ok := asText(v); ok {
		w.emit(s)
	} else if v != nil {
		w.repr(v, 0)
	}
}

// repr writes Python's repr(v); depth is how deep v is nested in what is written.
func (w *writer) repr(v any, depth int) {
	w.run.visit(depth)
	switch v := v.(type) {
	case nil:
		w.emit("Undefined")
	case noneType:
		w.emit("None")
	case bool:
		w.emit([]string{"False", "True"}[btoi(v)])
	case string:
		w.emit(reprString(v))
	case markup:
		w.emit("Markup(" + reprString(string(v)) + ")")
	case int, *big.Int:
		w.emit(reprInt(v))
	case float64:
		w.emit(reprFloat(v))
	case tuple:
		w.series("(", strings.Repeat(",", btoi(len(v) == 1))+")", ", ", len(v), func(i int) { w.repr(v[i], depth+1) })
	case group:
		w.repr(tuple{v.grouper, v.list}, depth)
	case *view:
		if v.name == generator {
			panic(faultf("cannot print a generator, want | list or | join first"))
		}
		if w.emit(v.name); isRange(v) {
			break
		}
		w.emit("(")
		w.repr(v.items, depth+1)
		w.emit(")")
	case []any:
		w.series("[", "]", ", ", len(v), func(i int) { w.repr(v[i], depth+1) })
	case Dict:
		w.series("{", "}", ", ", len(v), func(i int) {
			w.repr(v[i].Key, depth+1)
			w.emit(": ")
			w.repr(v[i].Value, depth+1)
		})
	default:
		w.emit("<" + kindOf(v) + ">")
	}
}

func (w *writer) series(open, end, comma string, n int, item func(i int)) {
	w.emit(open)
	for i := range n {
		if i > 0 {
			w.emit(comma)
		}
		item(i)
	}
	w.emit(end)
}

func reprString(s string) string {
	mark := "'"
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		mark = `"`
	}
	var b strings.Builder
	b.WriteString(mark)
	for _, r := range s {
		switch {
		case r >= ' ' && r < 0x7f && r != '\\' && r != rune(mark[0]):
			b.WriteByte(byte(r))
		case r == '\\' || string(r) == mark:
			b.WriteString(`\` + string(r))
		case r == '\n' || r == '\r' || r == '\t':
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		default:
			b.WriteString(escapeRune(r, !strconv.IsPrint(r)))
		}
	}
	return b.String() + mark
}

func escapeRune(r rune, escape bool) string {
	switch {
	case !escape:
		return string(r)
	case r < 0x100:
		return fmt.Sprintf(`\x%02x`, r)
	case r < 0x10000:
		return fmt.Sprintf(`\u%04x`, r)
	}
	return fmt.Sprintf(`\U%08x`, r)
}

// reprFloat prints the shortest digits, with an exponent below 1e-4 and from 1e16 on.
func reprFloat(f float64) string {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		return strings.TrimPrefix(strings.ToLower(strconv.FormatFloat(f, 'g', -1, 64)), "+")
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// jsonStyle holds the options of Python's json.dumps that a template can give.
type jsonStyle struct {
	*writer
	indent          string // of one level
	oneLine         bool
	comma, colon    string
	ascii, sortKeys bool
}

func toJSON(c *call) any {
	j := jsonStyle{oneLine: true, comma: ", ", colon: ": "}
	j.ascii, j.sortKeys = c.flag(0, "ensure_ascii"), c.flag(3, "sort_keys")
	switch width := c.arg(1, "indent", None).(type) {
	case int:
		j.oneLine, j.comma, j.indent = false, ",", strings.Repeat(" ", max(0, min(width, 100)))
	case string, markup:
		j.oneLine, j.comma, j.indent = false, ",", c.str(width)
	}
	if separators, ok := asList(c.arg(2, "separators", None)); ok && len(separators) == 2 {
		j.comma, j.colon = c.str(separators[0]), c.str(separators[1])
	}
	return c.text(func(w *writer) {
		j.writer = w
		j.dumps(c.self, 0)
	})
}

// dumps writes Python's json.dumps(v); depth is how deep v is nested in what is written.
func (j jsonStyle) dumps(v any, depth int) {
	j.run.visit(depth)
	switch v := v.(type) {
	case noneType:
		j.emit("null")
	case bool:
		j.emit(strconv.FormatBool(v))
	case string:
		j.emit(j.quote(v))
	case markup:
		j.emit(j.quote(string(v)))
	case int, *big.Int:
		j.emit(reprInt(v))
	case float64:
		text := reprFloat(v)
		j.emit(cmp.Or(map[string]string{"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[text], text))
	case Dict:
		j.dict(v, depth)
	default:
		items, ok := asList(v)
		if !ok {
			panic(faultf("cannot write %s as JSON", kindOf(v)))
		}
		j.block("[", "]", depth, len(items), func(i int) { j.dumps(items[i], depth+1) })
	}
}

func (j jsonStyle) dict(d Dict, depth int) {
	if j.sortKeys {
		d = slices.Clone(d)
		slices.SortStableFunc(d, func(a, b Entry) int { return j.run.order(a.Key, b.Key, 0) })
	}
	j.block("{", "}", depth, len(d), func(i int) {
		key, isString := asText(d[i].Key)
		if is[tuple](d[i].Key) || d[i].Key == nil {
			panic(faultf("cannot write %s as a key of JSON", kindOf(d[i].Key)))
		}
		if !isString {
			key = j.run.text(func(w *writer) { jsonStyle{writer: w}.dumps(d[i].Key, depth) })
		}
		j.emit(j.quote(key) + j.colon)
		j.dumps(d[i].Value, depth+1)
	})
}

// block writes items on one line, or each on its own.
func (j jsonStyle) block(open, end string, depth, n int, item func(i int)) {
	if j.oneLine || n == 0 {
		j.series(open, end, j.comma, n, item)
		return
	}
	j.series(open, "", j.comma, n, func(i int) {
		j.newLine(depth + 1)
		item(i)
	})
	j.newLine(depth)
	j.emit(end)
}

func (j jsonStyle) newLine(depth int) {
	j.emit("\n")
	for range depth {
		j.emit(j.indent)
	}
}

var jsonEscapes = [0x80]string{'"': `\"`, '\\': `\\`, '\n': `\n`, '\r': `\r`, '\t': `\t`, '\b': `\b`, '\f': `\f`}

func (j jsonStyle) quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch escape := jsonEscapes[min(r, 0x7f)]; {
		case escape != "":
			b.WriteString(escape)
		case r < 0x20 || j.ascii && r >= 0x7f && r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		case j.ascii && r >= 0x10000:
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+(r-0x10000)>>10, 0xdc00+(r-0x10000)&0x3ff)
		default:
			b.WriteRune(r)
		}
	}
	return b.String() + `"`
}

// layouts has Go's layout for the codes of strftime that it covers. datetime.now() knows no zone.
var layouts = map[string]string{
	"a": "Mon", "A": "Monday", "b": "Jan", "B": "January", "d": "02", "D": "01/02/06", "e": "_2",
	"F": "2006-01-02", "H": "15", "I": "03", "m": "01", "M": "04", "p": "PM", "R": "15:04", "S": "05",
	"T": "15:04:05", "y": "06", "Y": "2006", "c": "Mon Jan _2 15:04:05 2006", "h": "Jan", "x": "01/02/06",
	"X": "15:04:05", "j": "002", "%": "%", "n": "\n", "t": "\t", "z": "", "Z": "",
}

var strftimeCodes = regexp.MustCompile(`(?s)%(-?)(.)`)

// strftime formats t as Python's strftime does in the C locale; an unknown code stays as it is. A - drops leading
// zeros.
func strftime(t time.Time, format string) string {
	return strftimeCodes.ReplaceAllStringFunc(format, func(found string) string {
		parts := strftimeCodes.FindStringSubmatch(found)
		out := "%" + parts[2]
		switch layout, ok := layouts[parts[2]]; {
		case ok:
			out = t.Format(layout)
		case parts[2] == "f":
			out = fmt.Sprintf("%06d", t.Nanosecond()/1000)
		case parts[2] == "w":
			out = strconv.Itoa(int(t.Weekday()))
		case parts[2] == "u":
			out = strconv.Itoa((int(t.Weekday())+6)%7 + 1)
		}
		if parts[1] == "-" && out != "" {
			out = cmp.Or(strings.TrimLeft(out, "0 "), "0") // such as the hour at midnight
		}
		return out
	})
}
