package jinja

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/nikolalohinski/gonja/v2/builtins/control_structures"
	"github.com/nikolalohinski/gonja/v2/exec"
)

// method calls x.name(args): the first argument is the name.
func method(c *call) (any, error) {
	name := c.args[0].(string)
	c = &call{self: c.self, args: c.args[1:], kwargs: c.kwargs}
	known := map[string]function{}
	switch self := c.self.(type) {
	case string:
		known = stringMethods
	case Dict:
		known = dictMethods
	case []any:
		known = listMethods
	case *controlStructures.LoopInfos:
		return loopMethod(self, name, c.args)
	}
	if f := known[name]; f != nil {
		return f(c)
	}
	return nil, fmt.Errorf("%s has no method %q: want one of %s", kindOf(c.self), name, names(known))
}

// loopMethod calls loop.cycle or loop.changed.
func loopMethod(loop *controlStructures.LoopInfos, name string, args []any) (any, error) {
	v, _ := loop.GetAttribute(name)
	f, ok := v.Interface().(func(*exec.VarArgs) *exec.Value)
	if !ok {
		return nil, fmt.Errorf("the loop has no method %q: want cycle or changed", name)
	}
	given := exec.NewVarArgs()
	for _, a := range args {
		given.Args = append(given.Args, exec.AsValue(a))
	}
	return plain(f(given)), nil
}

var dictMethods = map[string]function{
	"get": func(c *call) (any, error) {
		if v, ok := c.self.(Dict).get(c.arg(0, "key", None)); ok {
			return v, nil
		}
		return c.arg(1, "default", None), nil
	},
	"items": func(c *call) (any, error) { return c.self.(Dict).items(), nil },
	"keys":  func(c *call) (any, error) { return c.self.(Dict).keys(), nil },
	"values": func(c *call) (any, error) {
		out := []any{}
		for _, e := range c.self.(Dict) {
			out = append(out, e.Value)
		}
		return out, nil
	},
}

var listMethods = map[string]function{
	"count": func(c *call) (any, error) {
		n := 0
		for _, x := range c.self.([]any) {
			n += btoi(equal(x, c.arg(0, "value", None)))
		}
		return n, nil
	},
	"index": func(c *call) (any, error) {
		at := slices.IndexFunc(c.self.([]any), func(x any) bool { return equal(x, c.arg(0, "value", None)) })
		if at < 0 {
			return nil, fmt.Errorf("index: %s is not in the list", repr(c.arg(0, "value", None)))
		}
		return at, nil
	},
}

var stringMethods = map[string]function{
	"capitalize": onString(func(s string) any { return capitalize(s) }),
	"count":      func(c *call) (any, error) { return countString(c.self.(string), str(c.arg(0, "sub", ""))), nil },
	"endswith":   affixed(strings.HasSuffix),
	"find":       finding(strings.Index, -1),
	"index":      finding(strings.Index, 0),
	"isalnum":    every(func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }),
	"isalpha":    every(unicode.IsLetter),
	"isdigit":    every(unicode.IsDigit),
	"islower":    onString(func(s string) any { return s == strings.ToLower(s) && s != strings.ToUpper(s) }),
	"isspace":    every(isSpace),
	"isupper":    onString(func(s string) any { return s == strings.ToUpper(s) && s != strings.ToLower(s) }),
	"join":       func(c *call) (any, error) { return joinStrings(c.self.(string), c.arg(0, "iterable", None)) },
	"lower":      onString(func(s string) any { return toLower(s) }),
	"lstrip":     stripping(true, false),
	"partition":  partitioning(strings.Index, false),
	"removeprefix": func(c *call) (any, error) {
		return strings.TrimPrefix(c.self.(string), str(c.arg(0, "prefix", ""))), nil
	},
	"removesuffix": func(c *call) (any, error) {
		return strings.TrimSuffix(c.self.(string), str(c.arg(0, "suffix", ""))), nil
	},
	"replace":    replace,
	"rfind":      finding(strings.LastIndex, -1),
	"rpartition": partitioning(strings.LastIndex, true),
	"rsplit":     splitting(true),
	"rstrip":     stripping(false, true),
	"split":      splitting(false),
	"splitlines": splitLines,
	"startswith": affixed(strings.HasPrefix),
	"strip":      stripping(true, true),
	"title":      onString(func(s string) any { return titleWords(s) }),
	"upper":      onString(func(s string) any { return toUpper(s) }),
}

func onString(f func(string) any) function {
	return func(c *call) (any, error) { return f(c.self.(string)), nil }
}

func every(f func(rune) bool) function {
	return onString(func(s string) any { return s != "" && strings.IndexFunc(s, func(r rune) bool { return !f(r) }) < 0 })
}

func stripping(left, right bool) function {
	return func(c *call) (any, error) { return strip(c.self.(string), c.arg(0, "chars", None), left, right), nil }
}

// affixed takes one affix or a tuple of them.
func affixed(has func(s, affix string) bool) function {
	return func(c *call) (any, error) {
		affixes, ok := c.arg(0, "prefix", None).([]any)
		if !ok {
			affixes = []any{c.arg(0, "prefix", None)}
		}
		for _, a := range affixes {
			s, ok := a.(string)
			if !ok {
				return nil, fmt.Errorf("found %s, want a str or a tuple of them", kindOf(a))
			}
			if has(c.self.(string), s) {
				return true, nil
			}
		}
		return false, nil
	}
}

// finding counts in characters; absent is the result where there is none, 0 makes that an error.
func finding(find func(s, sub string) int, absent int) function {
	return func(c *call) (any, error) {
		s, sub := c.self.(string), str(c.arg(0, "sub", ""))
		at := find(s, sub)
		switch {
		case at >= 0:
			return utf8.RuneCountInString(s[:at]), nil
		case absent == 0:
			return nil, fmt.Errorf("index: %s is not in the str", repr(sub))
		}
		return absent, nil
	}
}

func countString(s, sub string) int { return strings.Count(s, sub) }

func joinStrings(separator string, v any) (any, error) {
	items, err := iterate(v)
	parts := make([]string, len(items))
	for i, x := range items {
		s, ok := x.(string)
		if !ok {
			return nil, fmt.Errorf("join: item %d is %s, want a str", i, kindOf(x))
		}
		parts[i] = s
	}
	if err == nil {
		err = fits(len(parts), len(separator))
	}
	if err != nil {
		return nil, err
	}
	return strings.Join(parts, separator), nil
}

func partitioning(find func(s, sub string) int, last bool) function {
	return func(c *call) (any, error) {
		s, sub := c.self.(string), str(c.arg(0, "sep", ""))
		at := find(s, sub)
		switch {
		case sub == "":
			return nil, fmt.Errorf("partition: found an empty separator, want one character or more")
		case at >= 0:
			return []any{s[:at], sub, s[at+len(sub):]}, nil
		case last:
			return []any{"", "", s}, nil
		}
		return []any{s, "", ""}, nil
	}
}

// splitting is str.split or rsplit(separator, most).
func splitting(fromRight bool) function {
	return func(c *call) (any, error) {
		s := c.self.(string)
		most, ok := c.arg(1, "maxsplit", -1).(int)
		if !ok {
			return nil, fmt.Errorf("split: maxsplit is %s, want an int", kindOf(c.arg(1, "maxsplit", -1)))
		}
		separator, isString := c.arg(0, "sep", None).(string)
		if isString && separator == "" {
			return nil, fmt.Errorf("split: found an empty separator, want one character or more")
		}
		cut := func(s string) (string, string, bool) { return cutSpace(s, fromRight) }
		if isString {
			cut = func(s string) (string, string, bool) { return cutString(s, separator, fromRight) }
		} else {
			s = strip(s, None, !fromRight, fromRight)
		}
		return splitWith(s, most, fromRight, isString, cut), nil
	}
}

// splitWith cuts pieces off one end, at most that many times.
func splitWith(s string, most int, fromRight, keepEmpty bool, cut func(string) (piece, rest string, ok bool)) []any {
	out := []any{}
	for ; most != 0; most-- {
		piece, rest, ok := cut(s)
		if !ok {
			break
		}
		out = append(out, piece)
		s = rest
	}
	if s != "" || keepEmpty {
		out = append(out, s)
	}
	if fromRight {
		slices.Reverse(out)
	}
	return out
}

func cutString(s, separator string, fromRight bool) (piece, rest string, ok bool) {
	if !fromRight {
		return strings.Cut(s, separator)
	}
	at := strings.LastIndex(s, separator)
	if at < 0 {
		return "", s, false
	}
	return s[at+len(separator):], s[:at], true
}

// cutSpace cuts at a run of whitespace.
func cutSpace(s string, fromRight bool) (piece, rest string, ok bool) {
	if fromRight {
		s = strings.TrimRightFunc(s, isSpace)
		at := strings.LastIndexFunc(s, isSpace)
		if at < 0 {
			return s, "", s != ""
		}
		_, size := utf8.DecodeRuneInString(s[at:])
		return s[at+size:], strings.TrimRightFunc(s[:at+size], isSpace), true
	}
	at := strings.IndexFunc(s, isSpace)
	if at < 0 {
		return s, "", s != ""
	}
	return s[:at], strings.TrimLeftFunc(s[at:], isSpace), true
}

func splitLines(c *call) (any, error) {
	s, keep := c.self.(string), truth(c.arg(0, "keepends", false))
	out := []any{}
	for s != "" {
		at := strings.IndexFunc(s, isLineEnd)
		if at < 0 {
			return append(out, s), nil
		}
		_, size := utf8.DecodeRuneInString(s[at:])
		if strings.HasPrefix(s[at:], "\r\n") {
			size = 2
		}
		line := s[:at]
		if keep {
			line = s[:at+size]
		}
		out = append(out, line)
		s = s[at+size:]
	}
	return out, nil
}

func isLineEnd(r rune) bool {
	return r >= '\n' && r <= '\r' || r >= 0x1c && r <= 0x1e || r == 0x85 || r == 0x2028 || r == 0x2029
}

// titleWords is Python's str.title: a letter is upper case where no letter stands before it.
func titleWords(s string) string {
	start := true
	return strings.Map(func(r rune) rune {
		defer func() { start = !unicode.IsLetter(r) }()
		if start {
			return unicode.ToTitle(r)
		}
		return unicode.ToLower(r)
	}, s)
}
