package jinja

import (
	"go/token"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
)

// changing has the methods that would change a value, which transformers refuses; unsupported those that do not work.
var (
	changing    = set("append clear extend insert pop popitem remove setdefault sort update")
	unsupported = set("encode format format_map maketrans to_bytes translate unescape")
)

var methodRules = rules{keeps: set("capitalize casefold center expandtabs join ljust lower lstrip " +
	"partition removeprefix removesuffix replace rjust rpartition rsplit rstrip split splitlines strip swapcase " +
	"title upper zfill")}

func methodsOf(v any) map[string]function {
	switch v.(type) {
	case string, markup:
		return stringMethods
	case Dict:
		return dictMethods
	case []any:
		return listMethods
	case tuple, group:
		return tupleMethods
	case *loop:
		return loopMethods
	case *cycler:
		return cyclerMethods
	case dictClass:
		return classMethods
	}
	return nil
}

// methodOf finds what v.name(args) calls: a method, or a macro that a value has under the name.
func (r *run) methodOf(v any, name string) function {
	known := methodsOf(v)
	if f := known[name]; f != nil {
		return f
	}
	if is[namespace](v) || is[Dict](v) {
		if f := callable(r.attribute(v, name)); f != nil {
			return f
		}
	}
	if len(known) == 0 {
		panic(faultf("%s has no method %q", kindOf(v), name))
	}
	panic(faultf("%s has no method %q: want one of %s", kindOf(v), name, names(known)))
}

var classMethods = map[string]function{"fromkeys": fromKeys}

func fromKeys(c *call) any {
	out := Dict{}
	for _, key := range c.iterate(c.arg(0, "iterable", nil)) {
		out = c.with(out, key, c.arg(1, "value", None))
	}
	return out
}

var cyclerMethods = map[string]function{
	"next": func(c *call) any {
		of := c.self.(*cycler)
		v := of.items[of.at]
		of.at = (of.at + 1) % len(of.items)
		return v
	},
	"reset": func(c *call) any { c.self.(*cycler).at = 0; return None },
}

var loopMethods = map[string]function{
	"cycle": func(c *call) any {
		if len(c.args) == 0 {
			panic(faultf("loop.cycle: found no argument, want one or more"))
		}
		return c.args[c.self.(*loop).at%len(c.args)]
	},
	"changed": func(c *call) any {
		l := c.self.(*loop)
		same := l.changed != nil && c.equal(l.changed, c.args, 0)
		l.changed = append([]any{}, c.args...)
		return !same
	},
}

var dictMethods = map[string]function{
	"copy":     func(c *call) any { return slices.Clone(c.self.(Dict)) },
	"fromkeys": fromKeys,
	"get": func(c *call) any {
		d := c.self.(Dict)
		if i := c.find(d, c.needed()); i >= 0 {
			return d[i].Value
		}
		return c.arg(1, "default", None)
	},
	"items": func(c *call) any { return &view{"dict_items", c.pairs(c.self.(Dict))} },
	"keys":  func(c *call) any { return &view{"dict_keys", c.iterate(c.self)} },
	"values": func(c *call) any {
		return &view{"dict_values", c.pluck(c.self.(Dict), func(e Entry) any { return e.Value })}
	},
}

var tupleMethods = map[string]function{
	"count": func(c *call) any {
		n, want := 0, c.needed()
		items, _ := asList(c.self)
		for _, x := range items {
			n += btoi(c.equal(x, want, 0))
		}
		return n
	},
	"index": func(c *call) any {
		items, _ := asList(c.self)
		want := c.needed()
		start, stop, _ := sliceBounds(len(items), []any{c.arg(1, "", None), c.arg(2, "", None)})
		at := slices.IndexFunc(items[start:max(start, stop)], func(x any) bool { return c.equal(x, want, 0) })
		if at < 0 {
			panic(faultf("index: %s is not in the list", c.repr(want)))
		}
		return start + at
	},
}

var listMethods = map[string]function{
	"copy": func(c *call) any { return slices.Clone(c.self.([]any)) }, "count": tupleMethods["count"],
	"index": tupleMethods["index"],
}

// needed is the first argument, by position.
func (c *call) needed() any {
	if len(c.args) == 0 {
		panic(faultf("found no argument, want one"))
	}
	return c.args[0]
}

// neededText is a first argument that is a str.
func (c *call) neededText() string {
	s, ok := asText(c.needed())
	if !ok {
		panic(faultf("found %s as argument, want a str", kindOf(c.args[0])))
	}
	return s
}

var stringMethods map[string]function

func init() {
	stringMethods = map[string]function{
		"capitalize": onText(capitalize),
		"casefold":   onText(func(s string) string { return cases.Fold().String(s) }),
		"center":     padMethod('c'),
		"count": func(c *call) any {
			s, _, ok := c.window(1)
			return btoi(ok) * strings.Count(s, c.neededText())
		},
		"endswith":   affixTest(strings.HasSuffix),
		"expandtabs": expandTabs,
		"find":       findMethod(strings.Index, true),
		"index":      findMethod(strings.Index, false),
		"isalnum":    every(func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }),
		"isalpha":    every(unicode.IsLetter),
		"isascii":    onText(func(s string) bool { return !strings.ContainsFunc(s, isWide) }),
		"isdecimal":  every(unicode.IsDigit),
		"isdigit": every(func(r rune) bool {
			return unicode.IsDigit(r) || strings.ContainsRune("¹²³⁰⁴⁵⁶⁷⁸⁹₀₁₂₃₄₅₆₇₈₉", r)
		}),
		"isidentifier": onText(func(s string) bool {
			return token.IsIdentifier(s) || token.IsKeyword(s)
		}),
		"islower":   onText(isLower),
		"isnumeric": every(unicode.IsNumber),
		"isprintable": onText(func(s string) bool {
			return !strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) })
		}),
		"isspace": every(isSpace),
		"istitle": onText(func(s string) bool { return s == pythonTitle(s) && s != strings.ToLower(s) }),
		"isupper": onText(isUpper),
		"join": func(c *call) any {
			return c.joinItems(c.self.(string), c.iterate(c.needed()), func(i int, v any) string {
				s, ok := asText(v)
				if !ok && !c.safe {
					panic(faultf("join: item %d is %s, want a str", i, kindOf(v)))
				}
				if c.safe {
					return string(escape(c.run, v))
				}
				return s
			})
		},
		"ljust":        padMethod('<'),
		"lower":        onText(toLower),
		"lstrip":       stripMethod(true, false),
		"partition":    partitionMethod(strings.Index, false),
		"removeprefix": func(c *call) any { return strings.TrimPrefix(c.self.(string), c.neededText()) },
		"removesuffix": func(c *call) any { return strings.TrimSuffix(c.self.(string), c.neededText()) },
		"replace":      replace,
		"rfind":        findMethod(strings.LastIndex, true),
		"rindex":       findMethod(strings.LastIndex, false),
		"rjust":        padMethod('>'),
		"rpartition":   partitionMethod(strings.LastIndex, true),
		"rsplit":       splitMethod(true),
		"rstrip":       stripMethod(false, true),
		"split":        splitMethod(false),
		"splitlines":   splitLines,
		"startswith":   affixTest(strings.HasPrefix),
		"strip":        stripMethod(true, true),
		"swapcase":     swapCase,
		"title":        onText(pythonTitle),
		"upper":        onText(toUpper),
		"zfill": func(c *call) any {
			s, width := c.self.(string), c.width(0)
			signed := len(s) > 0 && strings.ContainsRune("+-", rune(s[0]))
			return s[:btoi(signed)] + pad(s[btoi(signed):], width-btoi(signed), '>', "0")
		},
	}
}

func swapCase(c *call) any {
	s := c.self.(string)
	c.step(len(s))
	var b strings.Builder
	for _, r := range s {
		if unicode.IsUpper(r) {
			b.WriteString(toLower(string(r)))
		} else {
			b.WriteString(toUpper(string(r)))
		}
	}
	return b.String()
}

func isWide(r rune) bool { return r > 0x7f }

// pythonTitle puts a letter in upper case where no letter is before it.
func pythonTitle(s string) string {
	return titleCase(s, unicode.ToTitle, func(r rune) bool { return !unicode.IsLetter(r) })
}

// width is an argument that is a number of characters.
func (c *call) width(i int) int {
	if i >= len(c.args) || !isWhole(c.args[i]) {
		panic(faultf("found no width, want an int"))
	}
	n := max(0, toInt(c.args[i]))
	c.fits(n, 4)
	return n
}

func padMethod(align rune) function {
	return func(c *call) any {
		fill := " "
		if len(c.args) > 1 {
			fill = c.str(c.args[1])
		}
		if utf8.RuneCountInString(fill) != 1 {
			panic(faultf("found %q to fill with, want one character", fill))
		}
		if c.safe {
			fill = escaper.Replace(fill)
		}
		return pad(c.self.(string), c.width(0), align, fill)
	}
}

// pad fills s up to a width. The odd one of ^ is on the right, and of c where Python's str.center has it.
func pad(s string, width int, align rune, fill string) string {
	lack := max(0, width-utf8.RuneCountInString(s))
	left := map[rune]int{'<': 0, '>': lack, '^': lack / 2, 'c': lack/2 + lack&width&1}[align]
	return strings.Repeat(fill, left) + s + strings.Repeat(fill, lack-left)
}

func expandTabs(c *call) any {
	size := min(toInt(c.arg(0, "tabsize", 8)), maxText+1)
	c.fits(strings.Count(c.self.(string), "\t"), max(0, size))
	var b strings.Builder
	column := 0
	for _, r := range c.self.(string) {
		switch {
		case r == '\t' && size > 0:
			b.WriteString(strings.Repeat(" ", size-column%size))
			column = 0
		case r == '\t':
		default:
			b.WriteRune(r)
			if column++; r == '\n' || r == '\r' {
				column = 0
			}
		}
	}
	return b.String()
}

func isLower(s string) bool { return s == strings.ToLower(s) && s != strings.ToUpper(s) }

func isUpper(s string) bool { return s == strings.ToUpper(s) && s != strings.ToLower(s) }

func every(f func(rune) bool) function {
	other := func(r rune) bool { return !f(r) }
	return onText(func(s string) bool { return s != "" && !strings.ContainsFunc(s, other) })
}

func stripMethod(left, right bool) function {
	return func(c *call) any { return strip(c.self.(string), c.arg(0, "chars", None), left, right) }
}

// window is self between the arguments i and i+1, and how many characters are before it. ok is false
// where argument i is beyond the end.
func (c *call) window(i int) (text string, before int, ok bool) {
	s := c.self.(string)
	if len(c.args) <= i {
		return s, 0, true
	}
	r, bounds := c.runes(s), c.args[i:min(len(c.args), i+2)]
	start, stop, _ := sliceBounds(len(r), bounds)
	first, _ := sliceBound(bounds, 0)
	return string(r[start:max(start, stop)]), start, first <= len(r) && start <= stop
}

// affixTest takes one affix or a tuple of them.
func affixTest(has func(s, affix string) bool) function {
	return func(c *call) any {
		affixes, ok := c.needed().(tuple)
		if !ok {
			affixes = tuple{c.needed()}
		}
		text, _, ok := c.window(1)
		return slices.ContainsFunc(affixes, func(v any) bool {
			s, isText := asText(v)
			if !isText {
				panic(faultf("found %s, want a str or a tuple of them", kindOf(v)))
			}
			c.step(1 + len(s)/stepBytes)
			return ok && has(text, s)
		})
	}
}

// findMethod counts in characters; of what is absent the place is -1, or an error.
func findMethod(find func(s, sub string) int, mayMiss bool) function {
	return func(c *call) any {
		sub := c.neededText()
		s, before, ok := c.window(1)
		at := find(s, sub)
		switch {
		case ok && at >= 0:
			return before + utf8.RuneCountInString(s[:at])
		case !mayMiss:
			panic(faultf("index: %s is not in the str", c.repr(sub)))
		}
		return -1
	}
}

func partitionMethod(find func(s, sub string) int, last bool) function {
	return func(c *call) any {
		s, sub := c.self.(string), c.neededText()
		at := find(s, sub)
		switch {
		case sub == "":
			panic(faultf("partition: found an empty separator, want one character or more"))
		case at >= 0:
			return tuple{s[:at], sub, s[at+len(sub):]}
		case last:
			return tuple{"", "", s}
		}
		return tuple{s, "", ""}
	}
}

// splitMethod is str.split or rsplit(separator, most).
func splitMethod(fromRight bool) function {
	return func(c *call) any {
		s := c.self.(string)
		most := toInt(c.arg(1, "maxsplit", -1))
		if !isWhole(c.arg(1, "maxsplit", -1)) {
			panic(faultf("split: maxsplit is %s, want an int", kindOf(c.arg(1, "maxsplit", -1))))
		}
		separator, isString := asText(c.arg(0, "sep", None))
		if !isString && c.arg(0, "sep", None) != any(None) {
			panic(faultf("split: found %s, want a str", kindOf(c.arg(0, "sep", None))))
		}
		if isString && separator == "" {
			panic(faultf("split: found an empty separator, want one character or more"))
		}
		find := strings.Index
		if fromRight {
			find = strings.LastIndex
		}
		next := func(s string) (int, int) { at := find(s, separator); return at, at + len(separator) }
		if !isString {
			s = strip(s, None, !fromRight, fromRight)
			next = func(s string) (int, int) { return spaces(s, fromRight) }
		}
		return c.pieces(s, most, fromRight, isString, next)
	}
}

// pieces cuts s at most that many times, from one end; next says where the next separator begins and ends, or is -1.
func (r *run) pieces(s string, most int, fromRight, keepEmpty bool, next func(string) (begin, end int)) []any {
	out := []any{}
	for ; most != 0; most-- {
		begin, end := next(s)
		if begin < 0 {
			break
		}
		r.step(1)
		if fromRight {
			out, s = append(out, s[end:]), s[:begin]
		} else {
			out, s = append(out, s[:begin]), s[end:]
		}
	}
	if s != "" || keepEmpty {
		out = append(out, s)
	}
	if fromRight {
		slices.Reverse(out)
	}
	return out
}

// spaces finds the first or last run of whitespace.
func spaces(s string, last bool) (begin, end int) {
	if !last {
		begin = strings.IndexFunc(s, isSpace)
		return begin, len(s) - len(strings.TrimLeftFunc(s[max(0, begin):], isSpace))
	}
	if begin = strings.LastIndexFunc(s, isSpace); begin < 0 {
		return begin, 0
	}
	_, size := utf8.DecodeRuneInString(s[begin:])
	end = begin + size
	return len(strings.TrimRightFunc(s[:end], isSpace)), end
}

func splitLines(c *call) any {
	s, keep := c.self.(string), c.flag(0, "keepends")
	out := []any{}
	for s != "" {
		c.step(1)
		at := strings.IndexFunc(s, isLineEnd)
		if at < 0 {
			return append(out, s)
		}
		_, size := utf8.DecodeRuneInString(s[at:])
		if strings.HasPrefix(s[at:], "\r\n") {
			size = 2
		}
		out = append(out, s[:at+size*btoi(keep)])
		s = s[at+size:]
	}
	return out
}

func isLineEnd(r rune) bool {
	return r >= '\n' && r <= '\r' || r >= 0x1c && r <= 0x1e || r == 0x85 || r == 0x2028 || r == 0x2029
}
