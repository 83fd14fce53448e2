package jinja

import (
	"math"
	"math/big"
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
		"abs":         absolute,
		"attr":        attrFilter,
		"batch":       batch,
		"capitalize":  onText(capitalize),
		"center":      func(c *call) any { return pad(c.str(c.self), c.size("width", 80), 'c', " ") },
		"count":       length,
		"d":           defaultFilter,
		"default":     defaultFilter,
		"dictsort":    dictSort,
		"e":           func(c *call) any { return escape(c.run, c.self) },
		"escape":      func(c *call) any { return escape(c.run, c.self) },
		"first":       first,
		"float":       floatFilter,
		"forceescape": func(c *call) any { return escape(c.run, c.str(c.self)) },
		"format":      formatFilter,
		"groupby":     groupBy,
		"indent":      indent,
		"int":         intFilter,
		"items": func(c *call) any {
			d, ok := c.self.(Dict)
			if !ok && c.self != nil {
				panic(faultf("items: found %s, want a dict", kindOf(c.self)))
			}
			return generated(c.pairs(d))
		},
		"join":       join,
		"last":       last,
		"length":     length,
		"list":       func(c *call) any { return append([]any{}, c.iterate(c.self)...) },
		"lower":      onText(toLower),
		"map":        mapFilter,
		"max":        func(c *call) any { return c.extreme(1) },
		"min":        func(c *call) any { return c.extreme(-1) },
		"reject":     selectFilter(false, false),
		"rejectattr": selectFilter(true, false),
		"replace":    replace,
		"reverse":    reverse,
		"round":      round,
		"safe":       func(c *call) any { return markup(c.str(c.self)) },
		"select":     selectFilter(false, true),
		"selectattr": selectFilter(true, true),
		"slice":      sliceFilter,
		"sort":       sortFilter,
		"string":     func(c *call) any { return like(c.self, c.str(c.self)) },
		"sum":        sum,
		"title": onText(func(s string) string { // letters after a space, hyphen or opening bracket are upper case
			return titleCase(s, unicode.ToUpper, func(r rune) bool {
				return isSpace(r) || strings.ContainsRune("-({[<", r)
			})
		}),
		"tojson":    toJSON,
		"trim":      func(c *call) any { return strip(c.str(c.self), c.arg(0, "chars", None), true, true) },
		"truncate":  truncate,
		"unique":    unique,
		"upper":     onText(toUpper),
		"wordcount": wordCount,
	}
}

var filterRules = rules{keeps: set("capitalize center format indent lower reverse trim truncate upper"),
	raw: set("d default e escape safe string")}

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

// escape is str(v) with the marks of HTML escaped, unless it is safe already.
func escape(r *run, v any) markup {
	if safe, ok := v.(markup); ok {
		return safe
	}
	s := r.str(v)
	r.fits(6, len(s))
	return markup(escaper.Replace(s))
}

func length(c *call) any {
	if v, ok := c.self.(*view); ok && v.name == generator {
		panic(faultf("a generator has no length, want | list first"))
	}
	return len(c.iterate(c.self))
}

// first takes one item of a generator, which keeps the others.
func first(c *call) any {
	v, ok := c.self.(*view)
	if !ok || v.name != generator {
		return at(c.iterate(c.self), 0)
	}
	if len(v.items) == 0 {
		return nil
	}
	out := v.items[0]
	v.items = v.items[1:]
	return out
}

func last(c *call) any {
	if v, ok := c.self.(*view); ok && v.name == generator {
		panic(faultf("a generator has no last item, want | list first"))
	}
	items := c.iterate(c.self)
	return at(items, len(items)-1)
}

func reverse(c *call) any {
	if isText(c.self) {
		return c.slice(c.self, []any{None, None, -1})
	}
	reversed := c.slice(append([]any{}, c.iterate(c.self)...), []any{None, None, -1}).([]any)
	if v, ok := c.self.(*view); ok && v.name == generator {
		return reversed
	}
	return generated(reversed)
}

// size is an argument that is a number of characters.
func (c *call) size(name string, otherwise int) int {
	n := c.arg(0, name, otherwise)
	if !isWhole(n) {
		panic(faultf("%s: found %s, want an int", name, kindOf(n)))
	}
	size := max(0, toInt(n))
	c.fits(size, 1)
	return size
}

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
	return c.sortBy(c.pairs(d), c.flag(2, "reverse"), func(v any) any { return fold(v.(tuple)[at], sensitive) })
}

// fold ignores the case of a str unless that matters.
func fold(v any, caseSensitive bool) any {
	if s, ok := asText(v); ok && !caseSensitive {
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
	return c.sortBy(c.iterate(c.self), c.flag(0, "reverse"), func(v any) any {
		names, ok := asText(by)
		if !ok {
			return fold(c.path(v, by, nil), sensitive)
		}
		keys := tuple{}
		for name := range strings.SplitSeq(names, ",") {
			keys = append(keys, fold(c.path(v, name, nil), sensitive))
		}
		return keys
	})
}

// path follows an attribute argument: a name with dots, or an index. What is undefined on the way is otherwise.
func (r *run) path(v, by, otherwise any) any {
	r.step(1 + textSize(v)/stepBytes)
	parts := []any{by}
	if name, ok := asText(by); ok {
		parts = nil
		for part := range strings.SplitSeq(name, ".") {
			if i, err := strconv.Atoi(part); err == nil {
				parts = append(parts, i)
			} else {
				parts = append(parts, part)
			}
		}
	}
	for _, part := range parts {
		if part == any(None) || part == nil {
			break
		}
		if v = r.item(v, part); v == nil && otherwise != any(None) {
			v = otherwise
		}
	}
	return v
}

func intFilter(c *call) any {
	c.defined()
	otherwise, base := c.arg(0, "default", 0), c.arg(1, "base", 10)
	f, whole, ok := toNumber(c.self)
	if s, isText := asText(c.self); isText {
		if n, ok := readInt(s, toInt(base)); ok && isWhole(base) {
			return n
		}
		f, ok = readFloat(s)
		ok = ok && !math.IsInf(f, 0)
	}
	switch {
	case !ok || math.IsNaN(f):
		return otherwise
	case whole:
		return narrow(wide(c.self))
	case math.IsInf(f, 0):
		panic(faultf("int: an infinite float has no int"))
	}
	n, _ := big.NewFloat(f).Int(nil)
	return narrow(n)
}

// defined refuses an undefined value.
func (c *call) defined() {
	if c.self == nil {
		panic(faultf("found an undefined value, want another"))
	}
}

func floatFilter(c *call) any {
	c.defined()
	if s, ok := asText(c.self); ok {
		if f, ok := readFloat(s); ok {
			return f
		}
	} else if _, _, ok := toNumber(c.self); ok {
		return float(c.self)
	}
	return c.arg(0, "default", 0.0)
}

func absolute(c *call) any {
	_, whole, ok := toNumber(c.self)
	switch {
	case !ok:
		panic(faultf("abs: found %s, want a number", kindOf(c.self)))
	case whole:
		return narrow(new(big.Int).Abs(wide(c.self)))
	}
	return math.Abs(c.self.(float64))
}

func round(c *call) any {
	_, whole, ok := toNumber(c.self)
	given, method := c.arg(0, "precision", 0), c.arg(1, "method", "common")
	if !ok || !isWhole(given) {
		panic(faultf("round: found %s, want a number", kindOf(c.self)))
	}
	digits := max(-400, min(toInt(given), 400)) // beyond a float's range
	switch {
	case method == "ceil" || method == "floor":
		return roundTo(map[any]func(float64) float64{"ceil": math.Ceil, "floor": math.Floor}[method], c.self, digits)
	case method != "common":
		panic(faultf("round: found %s as method, want common, ceil or floor", c.repr(method)))
	case whole && digits >= 0:
		return narrow(wide(c.self))
	case whole:
		return roundWhole(wide(c.self), -digits)
	case digits < 0:
		scale := math.Pow10(-digits)
		return math.RoundToEven(float(c.self)/scale) * scale
	}
	// The nearest decimal, halves to even, as Python's round does.
	f, _ := strconv.ParseFloat(strconv.FormatFloat(float(c.self), 'f', digits, 64), 64)
	return f
}

func roundTo(f func(float64) float64, v any, digits int) any {
	scale := arithmetic("**", 10, digits)
	rounded := f(float(arithmetic("*", v, scale)))
	if math.IsInf(rounded, 0) || math.IsNaN(rounded) {
		panic(faultf("round: %s has no int", reprFloat(rounded)))
	}
	n, _ := big.NewFloat(rounded).Int(nil)
	return arithmetic("/", narrow(n), scale)
}

// roundWhole rounds to a power of ten, halves to even.
func roundWhole(n *big.Int, digits int) any {
	scale := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(digits)), nil)
	quotient, rest := new(big.Int).DivMod(n, scale, new(big.Int))
	half := new(big.Int).Lsh(rest, 1).Cmp(scale)
	if half > 0 || half == 0 && quotient.Bit(0) == 1 {
		quotient.Add(quotient, big.NewInt(1))
	}
	return narrow(quotient.Mul(quotient, scale))
}

func indent(c *call) any {
	if !isText(c.self) {
		panic(faultf("indent: found %s, want a str", kindOf(c.self)))
	}
	given := c.arg(0, "width", 4)
	margin, ok := asText(given)
	if n := toInt(given); isWhole(given) && n <= 1000 {
		margin, ok = strings.Repeat(" ", max(0, n)), true
	}
	if !ok {
		panic(faultf("indent: found %s as width, want an int up to 1000 or a str", kindOf(given)))
	}
	s := c.str(c.self)
	n := 1 + strings.Count(s, "\n")
	c.step(n)
	c.fits(n, len(margin))
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		if i == 0 && c.flag(1, "first") || i > 0 && (line != "" || c.flag(2, "blank")) {
			lines[i] = margin + line
		}
	}
	return strings.Join(lines, "\n")
}

func join(c *call) any {
	by, separator := c.arg(1, "attribute", None), c.textArg(0, "d")
	return c.joinItems(separator, c.iterate(c.self), func(_ int, v any) string { return c.str(c.path(v, by, None)) })
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
	by, _ := c.kwargs.get("attribute")
	otherwise, _ := c.kwargs.get("default")
	for _, e := range c.kwargs {
		if len(c.args) == 0 && e.Key != "attribute" && e.Key != "default" {
			panic(faultf("map: found the argument %s, want attribute or default", e.Key))
		}
	}
	one := func(v any) any { return c.path(v, by, otherwise) }
	if len(c.args) > 0 {
		name, _ := asText(c.args[0])
		f := filters[name]
		if f == nil {
			panic(faultf("map: filter %s: want one of %s", c.repr(c.args[0]), names(filters)))
		}
		one = func(v any) any {
			return (&call{run: c.run, self: v, args: c.args[1:], kwargs: c.kwargs}).textually(name, filterRules, f)
		}
	} else if by == nil {
		panic(faultf("map: found no argument, want a filter or attribute="))
	}
	items := c.some()
	c.step(len(items))
	out := make([]any, len(items))
	for i, v := range items {
		out[i] = one(v)
	}
	return generated(out)
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
			v := c.path(x, by, nil)
			if len(args) == 0 && truth(v) == want || len(args) > 0 && c.holds(v, args[0], args[1:]) == want {
				out = append(out, x)
			}
		}
		return generated(out)
	}
}

// extreme is the greatest item where want is 1, the least where it is -1.
func (c *call) extreme(want int) any {
	items := c.iterate(c.self)
	best, by, sensitive := at(items, 0), c.arg(1, "attribute", None), c.flag(0, "case_sensitive")
	for _, x := range items[min(1, len(items)):] {
		c.step(textSize(x) / stepBytes)
		a, b := fold(c.path(x, by, nil), sensitive), fold(c.path(best, by, nil), sensitive)
		if isNaN(a) || isNaN(b) {
			continue
		}
		if c.order(a, b, 0)*want > 0 {
			best = x
		}
	}
	return best
}

func replace(c *call) any {
	n := -1
	if given := c.arg(2, "count", None); isWhole(given) {
		n = toInt(given)
	}
	s, old, with := c.str(c.self), c.textArg(0, "old"), c.textArg(1, "new")
	if c.safe {
		with = string(escape(c.run, c.arg(1, "new", "")))
	}
	c.fits(strings.Count(s, old), len(with))
	return strings.Replace(s, old, with, n)
}

func sum(c *call) any {
	total := c.arg(1, "start", 0)
	for _, x := range c.iterate(c.self) {
		if x = c.path(x, c.arg(0, "attribute", None), nil); isText(x) || isText(total) {
			panic(faultf("sum: found a str, want numbers or lists"))
		}
		total = c.operate("+", total, x)
	}
	return total
}

// strip takes characters off both ends: the characters of set, or whitespace where set is None.
func strip(s string, set any, left, right bool) string {
	drop := isSpace
	if chars, ok := asText(set); ok {
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
		key := fold(c.path(x, c.arg(1, "attribute", None), nil), c.flag(0, "case_sensitive"))
		c.hash(key, 0)
		if !c.contains(seen, key) {
			out, seen = append(out, x), append(seen, key)
		}
	}
	return generated(out)
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
	"callable":    onValue(func(v any) bool { return v == nil || callable(v) != nil }),
	"defined":     onValue(func(v any) bool { return v != nil }),
	"divisibleby": isDivisible,
	"escaped":     onValue(is[markup]),
	"even":        onValue(func(v any) bool { return rest(v) == 0 }),
	"filter":      onValue(func(v any) bool { s, _ := asText(v); return filters[s] != nil }),
	"false":       onValue(func(v any) bool { return v == any(false) }),
	"float":       onValue(is[float64]),
	"in":          func(r *run, v any, args []any) bool { return r.contains(args[0], v) },
	"integer":     onValue(func(v any) bool { return isWhole(v) && !is[bool](v) }),
	"iterable":    onValue(isIterable),
	"lower":       func(r *run, v any, _ []any) bool { return isLower(r.str(v)) },
	"mapping":     onValue(is[Dict]),
	"none":        onValue(is[noneType]),
	"number":      onValue(func(v any) bool { _, _, ok := toNumber(v); return ok }),
	"odd":         onValue(func(v any) bool { return rest(v) == 1 }),
	"sameas": func(r *run, v any, args []any) bool {
		return kindOf(v) == kindOf(args[0]) && r.equal(v, args[0], 0)
	},
	"sequence":  onValue(func(v any) bool { return isIterable(v) && (!is[*view](v) || isRange(v)) }),
	"string":    onValue(isText),
	"true":      onValue(func(v any) bool { return v == any(true) }),
	"undefined": onValue(func(v any) bool { return v == nil }),
	"upper":     func(r *run, v any, _ []any) bool { return isUpper(r.str(v)) },
}

// takesArgument has the tests with an argument.
var takesArgument = map[string]bool{"divisibleby": true, "in": true, "sameas": true}

func init() {
	tests["test"] = onValue(func(v any) bool { s, _ := asText(v); return tests[s] != nil })
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

// rest is what a division by 2 leaves.
func rest(v any) float64 {
	if _, _, ok := toNumber(v); !ok {
		panic(faultf("found %s, want a number", kindOf(v)))
	}
	return float(arithmetic("%", v, 2))
}

func onValue(f func(v any) bool) test {
	return func(_ *run, v any, _ []any) bool { return f(v) }
}

func is[T any](v any) bool {
	_, ok := v.(T)
	return ok
}

func isDivisible(r *run, v any, args []any) bool {
	_, _, ok := toNumber(v)
	by, _, okBy := toNumber(args[0])
	if !ok || !okBy || by == 0 {
		panic(faultf("divisibleby: found %s and %s, want two numbers, the second not 0", r.repr(v), r.repr(args[0])))
	}
	return !truth(arithmetic("%", v, args[0]))
}

func (r *run) holds(v, name any, args []any) bool {
	r.step(1 + textSize(v)/stepBytes)
	s, _ := asText(name)
	t := tests[s]
	if t == nil {
		panic(faultf("test %s: want one of %s", r.repr(name), names(tests)))
	}
	if len(args) == 0 && takesArgument[s] {
		panic(faultf("test %q: found no argument, want one", s))
	}
	return t(r, v, args)
}
