package jinja

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// methodOf finds what v.name(args) calls.
func methodOf(v any, name string) function {
	known := map[string]function{}
	switch v.(type) {
	case string:
		known = stringMethods
	case Dict:
		known = dictMethods
	case []any:
		known = listMethods
	case *loop:
		known = loopMethods
	}
	if f := known[name]; f != nil {
		return f
	}
	if len(known) == 0 {
		panic(faultf("%s has no method %q", kindOf(v), name))
	}
	panic(faultf("%s has no method %q: want one of %s", kindOf(v), name, names(known)))
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
	"get": func(c *call) any {
		c.step(len(c.self.(Dict)) / passSteps)
		if v, ok := c.self.(Dict).get(c.arg(0, "key", None)); ok {
			return v
		}
		return c.arg(1, "default", None)
	},
	"items":  func(c *call) any { return c.pairs(c.self.(Dict)) },
	"keys":   func(c *call) any { return c.iterate(c.self) },
	"values": func(c *call) any { return c.pluck(c.self.(Dict), func(e Entry) any { return e.Value }) },
}

var listMethods = map[string]function{
	"count": func(c *call) any {
		n := 0
		for _, x := range c.self.([]any) {
			n += btoi(c.equal(x, c.arg(0, "value", None), 0))
		}
		return n
	},
	"index": func(c *call) any {
		want := c.arg(0, "value", None)
		at := slices.IndexFunc(c.self.([]any), func(x any) bool { return c.equal(x, want, 0) })
		if at < 0 {
			panic(faultf("index: %s is not in the list", c.repr(want)))
		}
		return at
	},
}

var stringMethods = map[string]function{
	"capitalize": onText(capitalize),
	"count":      func(c *call) any { return strings.Count(c.self.(string), c.textArg(0, "sub")) },
	"endswith":   affixTest(strings.HasSuffix),
	"find":       findMethod(strings.Index, true),
	"index":      findMethod(strings.Index, false),
	"isalnum":    every(func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }),
	"isalpha":    every(unicode.IsLetter),
	"isdigit":    every(unicode.IsDigit),
	"islower":    onText(isLower),
	"isspace":    every(isSpace),
	"isupper":    onText(isUpper),
	"join": func(c *call) any {
		return c.joinItems(c.self.(string), c.iterate(c.arg(0, "iterable", None)), func(i int, v any) string {
			s, ok := v.(string)
			if !ok {
				panic(faultf("join: item %d is %s, want a str", i, kindOf(v)))
			}
			return s
		})
	},
	"lower":        onText(toLower),
	"lstrip":       stripMethod(true, false),
	"partition":    partitionMethod(strings.Index, false),
	"removeprefix": func(c *call) any { return strings.TrimPrefix(c.self.(string), c.textArg(0, "prefix")) },
	"removesuffix": func(c *call) any { return strings.TrimSuffix(c.self.(string), c.textArg(0, "suffix")) },
	"replace":      replace,
	"rfind":        findMethod(strings.LastIndex, true),
	"rpartition":   partitionMethod(strings.LastIndex, true),
	"rsplit":       splitMethod(true),
	"rstrip":       stripMethod(false, true),
	"split":        splitMethod(false),
	"splitlines":   splitLines,
	"startswith":   affixTest(strings.HasPrefix),
	"strip":        stripMethod(true, true),
	"title": onText(func(s string) string { // a letter is upper case where no letter is before it
		return titleCase(s, unicode.ToTitle, func(r rune) bool { return !unicode.IsLetter(r) })
	}),
	"upper": onText(toUpper),
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

// affixTest takes one affix or a tuple of them.
func affixTest(has func(s, affix string) bool) function {
	return func(c *call) any {
		affixes, ok := c.arg(0, "prefix", None).([]any)
		if !ok {
			affixes = []any{c.arg(0, "prefix", None)}
		}
		return slices.ContainsFunc(affixes, func(v any) bool {
			s, ok := v.(string)
			if !ok {
				panic(faultf("found %s, want a str or a tuple of them", kindOf(v)))
			}
			c.step(1 + len(s)/stepBytes)
			return has(c.self.(string), s)
		})
	}
}

// findMethod counts in characters; of what is absent the place is -1, or an error.
func findMethod(find func(s, sub string) int, mayMiss bool) function {
	return func(c *call) any {
		s, sub := c.self.(string), c.textArg(0, "sub")
		at := find(s, sub)
		if at < 0 && !mayMiss {
			panic(faultf("index: %s is not in the str", c.repr(sub)))
		}
		return utf8.RuneCountInString(s[:max(0, at)]) - btoi(at < 0)
	}
}

func partitionMethod(find func(s, sub string) int, last bool) function {
	return func(c *call) any {
		s, sub := c.self.(string), c.textArg(0, "sep")
		at := find(s, sub)
		switch {
		case sub == "":
			panic(faultf("partition: found an empty separator, want one character or more"))
		case at >= 0:
			return []any{s[:at], sub, s[at+len(sub):]}
		case last:
			return []any{"", "", s}
		}
		return []any{s, "", ""}
	}
}

// splitMethod is str.split or rsplit(separator, most).
func splitMethod(fromRight bool) function {
	return func(c *call) any {
		s := c.self.(string)
		most, ok := c.arg(1, "maxsplit", -1).(int)
		if !ok {
			panic(faultf("split: maxsplit is %s, want an int", kindOf(c.arg(1, "maxsplit", -1))))
		}
		separator, isString := c.arg(0, "sep", None).(string)
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
