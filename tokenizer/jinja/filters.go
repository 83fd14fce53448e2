package jinja

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

var filters map[string]function

func init() {
	filters = map[string]function{
		"abs":        absolute,
		"capitalize": onText(capitalize),
		"count":      length,
		"d":          defaultFilter,
		"default":    defaultFilter,
		"dictsort":   dictSort,
		"e":          onText(escape),
		"escape":     onText(escape),
		"first":      func(c *call) any { return c.item(c.iterate(c.self), 0) },
		"float":      floatFilter,
		"indent":     indent,
		"int":        intFilter,
		"items": func(c *call) any {
			d, ok := c.self.(Dict)
			if !ok && c.self != nil {
				panic(faultf("items: found %s, want a dict", kindOf(c.self)))
			}
			return c.pairs(d)
		},
		"join":       join,
		"last":       func(c *call) any { return c.item(c.iterate(c.self), -1) },
		"length":     length,
		"list":       func(c *call) any { return c.iterate(c.self) },
		"lower":      onText(toLower),
		"map":        mapFilter,
		"max":        func(c *call) any { return c.extreme(1) },
		"min":        func(c *call) any { return c.extreme(-1) },
		"reject":     selectFilter(false, false),
		"rejectattr": selectFilter(true, false),
		"replace":    replace,
		"reverse":    func(c *call) any { return c.slice(c.self, []any{None, None, -1}) },
		"round":      round,
		"safe":       func(c *call) any { return c.self },
		"select":     selectFilter(false, true),
		"selectattr": selectFilter(true, true),
		"sort":       sortFilter,
		"string":     func(c *call) any { return c.str(c.self) },
		"sum":        sum,
		"title": onText(func(s string) string { // letters after a space, hyphen or opening bracket are upper case
			return titleCase(s, unicode.ToUpper, func(r rune) bool {
				return isSpace(r) || strings.ContainsRune("-({[<", r)
			})
		}),
		"tojson":    toJSON,
		"trim":      func(c *call) any { return strip(c.str(c.self), c.arg(0, "chars", None), true, true) },
		"unique":    unique,
		"upper":     onText(toUpper),
		"wordcount": wordCount,
	}
}

// onText makes a filter or a method of a function of str(self).
func onText[T any](f func(string) T) function {
	return func(c *call) any { return f(c.str(c.self)) }
}

// toUpper and toLower are Python's, which may change the length: ß becomes SS.
func toUpper(s string) string { return cases.Upper(language.Und).String(s) }

func toLower(s string) string { return cases.Lower(language.Und).String(s) }

func capitalize(s string) string {
	r := []rune(strings.ToLower(s))
	if len(r) > 0 {
		r[0] = unicode.ToTitle(r[0])
	}
	return string(r)
}

// titleCase puts the first letter and those after a character for which opens holds in upper case, others in lower.
func titleCase(s string, upper func(rune) rune, opens func(before rune) bool) string {
	start := true
	return strings.Map(func(r rune) rune {
		defer func() { start = opens(r) }()
		if start {
			return upper(r)
		}
		return unicode.ToLower(r)
	}, s)
}

var escaper = strings.NewReplacer("&", "&amp;", ">", "&gt;", "<", "&lt;", "'", "&#39;", `"`, "&#34;")

func escape(s string) string { return escaper.Replace(s) }

func length(c *call) any { return len(c.iterate(c.self)) }

func defaultFilter(c *call) any {
	if c.self == nil || c.flag(1, "boolean") && !truth(c.self) {
		return c.arg(0, "default_value", "")
	}
	return c.self
}

func dictSort(c *call) any {
	d, ok := c.self.(Dict)
	if !ok {
		panic(faultf("dictsort: found %s, want a dict", kindOf(c.self)))
	}
	at, sensitive := btoi(c.arg(1, "by", "key") == "value"), c.flag(0, "case_sensitive")
	return c.sortBy(c.pairs(d), c.flag(2, "reverse"), func(v any) any { return fold(v.([]any)[at], sensitive) })
}

// fold ignores the case of a str unless that matters.
func fold(v any, caseSensitive bool) any {
	if s, ok := v.(string); ok && !caseSensitive {
		return strings.ToLower(s)
	}
	return v
}

func (r *run) sortBy(items []any, reverse bool, key func(any) any) any {
	type keyed struct{ key, value any }
	order := make([]keyed, len(items))
	for i, v := range items {
		order[i] = keyed{key(v), v}
	}
	slices.SortStableFunc(order, func(a, b keyed) int {
		if reverse {
			a, b = b, a
		}
		return r.order(a.key, b.key, 0)
	})
	out := make([]any, len(items))
	for i, k := range order {
		out[i] = k.value
	}
	return out
}

func sortFilter(c *call) any {
	by, sensitive := c.arg(2, "attribute", None), c.flag(1, "case_sensitive")
	return c.sortBy(c.iterate(c.self), c.flag(0, "reverse"), func(v any) any { return fold(c.path(v, by), sensitive) })
}

// path follows an attribute argument: a name with dots, or an index.
func (r *run) path(v, by any) any {
	r.step(1 + textSize(v)/stepBytes)
	switch by := by.(type) {
	case string:
		for part := range strings.SplitSeq(by, ".") {
			key := any(part)
			if i, err := strconv.Atoi(part); err == nil {
				key = i
			}
			v = r.reach(v, key)
		}
	case int:
		v = r.reach(v, by)
	}
	return v
}

// reach is item, but undefined of an undefined value.
func (r *run) reach(v, key any) any {
	if v == nil {
		return nil
	}
	return r.item(v, key)
}

func intFilter(c *call) any {
	otherwise := c.arg(0, "default", 0)
	f, whole, ok := toNumber(c.self)
	if s, isText := c.self.(string); isText {
		s = strings.TrimFunc(s, isSpace)
		if n, err := strconv.Atoi(s); err == nil {
			return n
		}
		var err error
		f, err = strconv.ParseFloat(s, 64)
		ok = err == nil
	}
	switch {
	case !ok || math.Abs(f) >= 1<<63 || math.IsNaN(f):
		return otherwise
	case whole:
		return toInt(c.self)
	}
	return int(f)
}

func floatFilter(c *call) any {
	if s, ok := c.self.(string); ok {
		if f, err := strconv.ParseFloat(strings.TrimFunc(s, isSpace), 64); err == nil || math.IsInf(f, 0) {
			return f
		}
	} else if f, _, ok := toNumber(c.self); ok {
		return f
	}
	return c.arg(0, "default", 0.0)
}

func absolute(c *call) any {
	f, whole, ok := toNumber(c.self)
	switch n := toInt(c.self); {
	case !ok:
		panic(faultf("abs: found %s, want a number", kindOf(c.self)))
	case whole:
		return max(n, -n)
	}
	return math.Abs(f)
}

func round(c *call) any {
	f, whole, ok := toNumber(c.self)
	digits, okDigits := c.arg(0, "precision", 0).(int)
	if !ok || !okDigits {
		panic(faultf("round: found %s, want a number", kindOf(c.self)))
	}
	digits = max(-400, min(digits, 400)) // beyond a float's range
	scale := math.Pow10(digits)
	method := c.arg(1, "method", "common")
	switch {
	case method == "ceil":
		return math.Ceil(f*scale) / scale
	case method == "floor":
		return math.Floor(f*scale) / scale
	case whole && digits >= 0:
		return toInt(c.self)
	case digits < 0:
		return math.RoundToEven(f*scale) / scale
	}
	// The nearest decimal, halves to even, as Python's round does.
	f, _ = strconv.ParseFloat(strconv.FormatFloat(f, 'f', max(0, digits), 64), 64)
	return f
}

func indent(c *call) any {
	margin, ok := c.arg(0, "width", 4).(string)
	if n, isInt := c.arg(0, "width", 4).(int); isInt && n <= 1000 {
		margin, ok = strings.Repeat(" ", max(0, n)), true
	}
	if !ok {
		panic(faultf("indent: found %s as width, want an int or a str", kindOf(c.arg(0, "width", 4))))
	}
	s := c.str(c.self)
	n := 1 + strings.Count(s, "\n")
	c.step(n)
	c.fits(n, len(margin))
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		if (i > 0 || c.flag(1, "first")) && (line != "" || c.flag(2, "blank")) {
			lines[i] = margin + line
		}
	}
	return strings.Join(lines, "\n")
}

func join(c *call) any {
	by, separator := c.arg(1, "attribute", None), c.textArg(0, "d")
	return c.joinItems(separator, c.iterate(c.self), func(_ int, v any) string { return c.str(c.path(v, by)) })
}

func (r *run) joinItems(separator string, items []any, text func(i int, v any) string) string {
	return r.text(func(w *writer) {
		w.series("", "", separator, len(items), func(i int) {
			r.step(1)
			w.emit(text(i, items[i]))
		})
	})
}

// some gives self's items; of None or another false value it gives nothing, as map and select do in Jinja2.
func (c *call) some() []any {
	if !truth(c.self) {
		return nil
	}
	return c.iterate(c.self)
}

// mapFilter takes an attribute of every item, or puts a filter on it.
func mapFilter(c *call) any {
	one := func(v any) any {
		by, _ := c.kwargs.get("attribute")
		if v = c.path(v, by); v == nil {
			return c.arg(1, "default", nil)
		}
		return v
	}
	if len(c.args) > 0 {
		name, _ := c.args[0].(string)
		f := filters[name]
		if f == nil {
			panic(faultf("map: filter %s: want one of %s", c.repr(c.args[0]), names(filters)))
		}
		one = func(v any) any { return (&call{c.run, v, c.args[1:], c.kwargs}).apply(f) }
	}
	items := c.some()
	c.step(len(items))
	out := make([]any, len(items))
	for i, v := range items {
		out[i] = one(v)
	}
	return out
}

// selectFilter makes select, reject and their attr forms, which keep the items for which the test gives want.
func selectFilter(byAttribute, want bool) function {
	return func(c *call) any {
		args, by := c.args, any(None)
		if byAttribute {
			if len(args) == 0 {
				panic(faultf("found no argument, want the name of an attribute"))
			}
			args, by = args[1:], args[0]
		}
		out := []any{}
		for _, x := range c.some() {
			v := c.path(x, by)
			if len(args) == 0 && truth(v) == want || len(args) > 0 && c.holds(v, args[0], args[1:]) == want {
				out = append(out, x)
			}
		}
		return out
	}
}

// extreme is the greatest item where want is 1, the least where it is -1.
func (c *call) extreme(want int) any {
	items := c.iterate(c.self)
	best := at(items, 0)
	for _, x := range items {
		c.step(textSize(x) / stepBytes)
		if c.order(fold(x, false), fold(best, false), 0)*want > 0 {
			best = x
		}
	}
	return best
}

func replace(c *call) any {
	n, ok := c.arg(2, "count", None).(int)
	if !ok {
		n = -1
	}
	s, old, with := c.str(c.self), c.textArg(0, "old"), c.textArg(1, "new")
	c.fits(strings.Count(s, old), len(with))
	return strings.Replace(s, old, with, n)
}

func sum(c *call) any {
	total := c.arg(1, "start", 0)
	for _, x := range c.iterate(c.self) {
		total = c.operate("+", total, c.path(x, c.arg(0, "attribute", None)))
	}
	return total
}

// strip takes characters off both ends: the characters of set, or whitespace where set is None.
func strip(s string, set any, left, right bool) string {
	drop := isSpace
	if chars, ok := set.(string); ok {
		drop = func(r rune) bool { return strings.ContainsRune(chars, r) }
	}
	if left {
		s = strings.TrimLeftFunc(s, drop)
	}
	if right {
		s = strings.TrimRightFunc(s, drop)
	}
	return s
}

func unique(c *call) any {
	out, seen := []any{}, []any{}
	for _, x := range c.iterate(c.self) {
		key := fold(c.path(x, c.arg(1, "attribute", None)), c.flag(0, "case_sensitive"))
		if !c.contains(seen, key) {
			out, seen = append(out, x), append(seen, key)
		}
	}
	return out
}

func wordCount(c *call) any {
	return len(strings.FieldsFunc(c.str(c.self), func(r rune) bool {
		return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}))
}

// A test says whether it holds for v.
type test func(r *run, v any, args []any) bool

var tests = map[string]test{
	"boolean":     onValue(is[bool]),
	"callable":    onValue(is[function]),
	"defined":     onValue(func(v any) bool { return v != nil }),
	"divisibleby": isDivisible,
	"even":        onValue(func(v any) bool { n, whole, _ := toNumber(v); return whole && math.Mod(n, 2) == 0 }),
	"false":       onValue(func(v any) bool { return v == any(false) }),
	"float":       onValue(is[float64]),
	"in":          func(r *run, v any, args []any) bool { return r.contains(args[0], v) },
	"integer":     onValue(is[int]),
	"iterable":    onValue(isIterable),
	"lower":       func(r *run, v any, _ []any) bool { return isLower(r.str(v)) },
	"mapping":     onValue(is[Dict]),
	"none":        onValue(is[noneType]),
	"number":      onValue(func(v any) bool { _, _, ok := toNumber(v); return ok }),
	"odd":         onValue(func(v any) bool { n, whole, _ := toNumber(v); return whole && math.Mod(n, 2) != 0 }),
	"sameas":      func(r *run, v any, args []any) bool { return kindOf(v) == kindOf(args[0]) && r.equal(v, args[0], 0) },
	"sequence":    onValue(isIterable),
	"string":      onValue(is[string]),
	"true":        onValue(func(v any) bool { return v == any(true) }),
	"undefined":   onValue(func(v any) bool { return v == nil }),
	"upper":       func(r *run, v any, _ []any) bool { return isUpper(r.str(v)) },
}

// takesArgument has the tests with an argument.
var takesArgument = map[string]bool{"divisibleby": true, "in": true, "sameas": true}

func init() {
	for op, spellings := range map[string]string{
		"==": "eq equalto ==", "!=": "ne !=", "<": "lt lessthan <", "<=": "le <=",
		">": "gt greaterthan >", ">=": "ge >=",
	} {
		for name := range strings.FieldsSeq(spellings) {
			takesArgument[name] = true
			tests[name] = func(r *run, v any, args []any) bool { return r.compare(op, v, args[0]) }
		}
	}
}

func onValue(f func(v any) bool) test {
	return func(_ *run, v any, _ []any) bool { return f(v) }
}

func is[T any](v any) bool {
	_, ok := v.(T)
	return ok
}

func isDivisible(r *run, v any, args []any) bool {
	n, _, ok := toNumber(v)
	by, _, okBy := toNumber(args[0])
	if !ok || !okBy || by == 0 {
		panic(faultf("divisibleby: found %s and %s, want two numbers, the second not 0", r.repr(v), r.repr(args[0])))
	}
	return math.Mod(n, by) == 0
}

func (r *run) holds(v, name any, args []any) bool {
	r.step(1 + textSize(v)/stepBytes)
	s, _ := name.(string)
	t := tests[s]
	if t == nil {
		panic(faultf("test %s: want one of %s", r.repr(name), names(tests)))
	}
	if len(args) == 0 && takesArgument[s] {
		panic(faultf("test %q: found no argument, want one", s))
	}
	return t(r, v, args)
}
