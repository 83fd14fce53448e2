package jinja

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// A call holds what a filter, test, method or function is given.
type call struct {
	self   any // what stands before the |, "is" or dot
	args   []any
	kwargs map[string]any
}

// arg returns the argument at position i or of that name, or otherwise.
func (c *call) arg(i int, name string, otherwise any) any {
	if i < len(c.args) {
		return c.args[i]
	}
	if v, ok := c.kwargs[name]; ok {
		return v
	}
	return otherwise
}

type function func(c *call) (any, error)

// filters has those that a template may name and, with an underscore, those that parse writes for operators.
var filters map[string]function

func init() {
	filters = map[string]function{
		"_print":   func(c *call) (any, error) { return str(c.self), fits(1, len(str(c.self))) },
		"_list":    func(c *call) (any, error) { return c.self, nil },
		"_dict":    makeDict,
		"_pick":    func(c *call) (any, error) { return item(c.self, 0) },
		"_not":     func(c *call) (any, error) { return !truth(c.self), nil },
		"_sign":    sign,
		"_float":   func(c *call) (any, error) { return strconv.ParseFloat(str(c.self), 64) },
		"_op":      operator,
		"_compare": comparison,
		"_attr":    func(c *call) (any, error) { return attribute(c.self, str(c.args[0])) },
		"_item":    func(c *call) (any, error) { return item(c.self, c.args[0]) },
		"_slice":   func(c *call) (any, error) { return slice(c.self, c.args) },
		"_method":  method,
		"_test":    func(c *call) (any, error) { return runTest(c.self, c.args[0], c.args[1:]) },
		"_iter":    iterateFor,
		"_unpack":  func(c *call) (any, error) { return unpack(c.self, c.args[0].(int)) },

		"abs":        absolute,
		"capitalize": stringFilter(capitalize),
		"count":      length,
		"d":          defaultFilter,
		"default":    defaultFilter,
		"dictsort":   dictSort,
		"e":          stringFilter(escape),
		"escape":     stringFilter(escape),
		"first":      func(c *call) (any, error) { return edge(c.self, 0) },
		"float":      toFloat,
		"indent":     indent,
		"int":        toInt,
		"items":      itemsFilter,
		"join":       join,
		"last":       func(c *call) (any, error) { return edge(c.self, -1) },
		"length":     length,
		"list":       func(c *call) (any, error) { return iterate(c.self) },
		"lower":      stringFilter(toLower),
		"map":        mapFilter,
		"max":        func(c *call) (any, error) { return extreme(c.self, 1) },
		"min":        func(c *call) (any, error) { return extreme(c.self, -1) },
		"reject":     selecting(false, false),
		"rejectattr": selecting(true, false),
		"replace":    replace,
		"reverse":    reverse,
		"round":      round,
		"safe":       func(c *call) (any, error) { return c.self, nil },
		"select":     selecting(false, true),
		"selectattr": selecting(true, true),
		"sort":       sortFilter,
		"string":     func(c *call) (any, error) { return str(c.self), nil },
		"sum":        sum,
		"title":      stringFilter(title),
		"tojson":     toJSON,
		"trim":       trim,
		"unique":     unique,
		"upper":      stringFilter(toUpper),
		"wordcount":  func(c *call) (any, error) { return len(words(str(c.self))), nil },
	}
}

func makeDict(c *call) (any, error) {
	flat := c.self.([]any)
	d := Dict{}
	for i := 0; i+1 < len(flat); i += 2 {
		d = d.with(flat[i], flat[i+1])
	}
	return d, nil
}

func (d Dict) with(key, value any) Dict {
	for i, e := range d {
		if equal(e.Key, key) {
			d[i].Value = value
			return d
		}
	}
	return append(d, Entry{key, value})
}

func sign(c *call) (any, error) {
	f, whole, ok := toNumber(c.self)
	if !ok {
		return nil, fmt.Errorf("cannot put a sign before %s", kindOf(c.self))
	}
	if c.args[0] == "-" {
		f = -f
	}
	if whole {
		return int(f), nil
	}
	return f, nil
}

// maxText bounds the strings that a template may build, in bytes.
const maxText = 1 << 26

// fits says whether n pieces of size bytes make a string within the bound.
func fits(n, size int) error {
	if float64(n)*float64(size) > maxText {
		return fmt.Errorf("template builds a str of more than %d bytes", maxText)
	}
	return nil
}

func operator(c *call) (any, error) {
	op, a, b := c.args[0].(string), c.self, c.args[1]
	if op == "~" {
		op, a, b = "+", str(a), str(b)
	}
	x, wholeX, okX := toNumber(a)
	y, wholeY, okY := toNumber(b)
	if okX && okY {
		if wholeX && wholeY && op != "/" {
			return integerOp(op, int(x), int(y))
		}
		return floatOp(op, x, y)
	}
	switch a := a.(type) {
	case string:
		if b, ok := b.(string); ok && op == "+" {
			return a + b, fits(1, len(a)+len(b))
		}
		if wholeY && op == "*" {
			return repeat(a, int(y))
		}
	case []any:
		if b, ok := b.([]any); ok && op == "+" {
			return slices.Concat(a, b), fits(64, len(a)+len(b))
		}
	}
	return nil, fmt.Errorf("%s %s %s: not defined", kindOf(a), op, kindOf(b))
}

func repeat(s string, n int) (any, error) {
	if err := fits(n, len(s)); err != nil {
		return nil, err
	}
	return strings.Repeat(s, max(0, n)), nil
}

func integerOp(op string, a, b int) (any, error) {
	switch op {
	case "+":
		return a + b, nil
	case "-":
		return a - b, nil
	case "*":
		return a * b, nil
	case "**":
		if b >= 0 {
			return power(a, b)
		}
		return math.Pow(float64(a), float64(b)), nil
	}
	if b == 0 {
		return nil, fmt.Errorf("%d %s 0: division by zero", a, op)
	}
	quotient := a / b
	if a%b != 0 && (a < 0) != (b < 0) {
		quotient--
	}
	if op == "//" {
		return quotient, nil
	}
	return a - quotient*b, nil
}

func power(a, b int) (any, error) {
	if math.Abs(float64(b)*math.Log2(math.Abs(float64(a))+1)) > 62 {
		return nil, fmt.Errorf("%d ** %d: result of more than 62 bits", a, b)
	}
	n := new(big.Int).Exp(big.NewInt(int64(a)), big.NewInt(int64(b)), nil)
	return int(n.Int64()), nil
}

func floatOp(op string, a, b float64) (any, error) {
	switch op {
	case "+":
		return a + b, nil
	case "-":
		return a - b, nil
	case "*":
		return a * b, nil
	case "**":
		return math.Pow(a, b), nil
	}
	if b == 0 {
		return nil, fmt.Errorf("%s %s 0: division by zero", reprFloat(a), op)
	}
	switch op {
	case "/":
		return a / b, nil
	case "//":
		return math.Floor(a / b), nil
	}
	return a - math.Floor(a/b)*b, nil
}

// comparison goes through a chain: operator, operand, operator, operand.
func comparison(c *call) (any, error) {
	left := c.self
	for i := 0; i+1 < len(c.args); i += 2 {
		right := c.args[i+1]
		yes, err := compareWith(c.args[i].(string), left, right)
		if err != nil || !yes {
			return false, err
		}
		left = right
	}
	return true, nil
}

func compareWith(op string, a, b any) (bool, error) {
	switch op {
	case "==":
		return equal(a, b), nil
	case "!=":
		return !equal(a, b), nil
	case "in":
		return contains(b, a)
	case "not in":
		yes, err := contains(b, a)
		return !yes, err
	}
	order, err := compareValues(a, b)
	switch op {
	case "<":
		return order < 0, err
	case "<=":
		return order <= 0, err
	case ">":
		return order > 0, err
	}
	return order >= 0, err
}

func iterateFor(c *call) (any, error) {
	items, err := iterate(c.self)
	n := c.args[0].(int)
	if err != nil || n == 1 {
		return items, err
	}
	out := make([]any, len(items))
	for i, x := range items {
		if out[i], err = unpack(x, n); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func unpack(v any, n int) ([]any, error) {
	items, err := iterate(v)
	if err == nil && (v == nil || len(items) != n) {
		err = fmt.Errorf("cannot unpack %s of %d into %d names", kindOf(v), len(items), n)
	}
	return items, err
}

// toUpper and toLower are Python's, which may change the length: ß becomes SS.
func toUpper(s string) string { return cases.Upper(language.Und).String(s) }

func toLower(s string) string { return cases.Lower(language.Und).String(s) }

func stringFilter(f func(string) string) function {
	return func(c *call) (any, error) { return f(str(c.self)), nil }
}

func capitalize(s string) string {
	r := []rune(strings.ToLower(s))
	if len(r) > 0 {
		r[0] = unicode.ToTitle(r[0])
	}
	return string(r)
}

// title is Jinja2's filter: letters after a space, hyphen or opening bracket are upper case.
func title(s string) string {
	start := true
	return strings.Map(func(r rune) rune {
		defer func() { start = isSpace(r) || strings.ContainsRune("-({[<", r) }()
		if start {
			return unicode.ToUpper(r)
		}
		return unicode.ToLower(r)
	}, s)
}

var escaper = strings.NewReplacer("&", "&amp;", ">", "&gt;", "<", "&lt;", "'", "&#39;", `"`, "&#34;")

func escape(s string) string { return escaper.Replace(s) }

func length(c *call) (any, error) {
	if c.self == nil {
		return 0, nil
	}
	items, err := iterate(c.self)
	return len(items), err
}

func defaultFilter(c *call) (any, error) {
	if c.self == nil || truth(c.arg(1, "boolean", false)) && !truth(c.self) {
		return c.arg(0, "default_value", ""), nil
	}
	return c.self, nil
}

func dictSort(c *call) (any, error) {
	d, ok := c.self.(Dict)
	if !ok {
		return nil, fmt.Errorf("dictsort: found %s, want a dict", kindOf(c.self))
	}
	items := d.items()
	at := btoi(c.arg(1, "by", "key") == "value")
	return sorted(items, truth(c.arg(2, "reverse", false)), func(v any) any {
		return foldUnless(truth(c.arg(0, "case_sensitive", false)), v.([]any)[at])
	})
}

func foldUnless(caseSensitive bool, v any) any {
	if s, ok := v.(string); ok && !caseSensitive {
		return strings.ToLower(s)
	}
	return v
}

func sorted(items []any, reverse bool, key func(any) any) (any, error) {
	var fault error
	out := slices.Clone(items)
	slices.SortStableFunc(out, func(a, b any) int {
		order, err := compareValues(key(a), key(b))
		if err != nil {
			fault = err
		}
		if reverse {
			return -order
		}
		return order
	})
	return out, fault
}

func sortFilter(c *call) (any, error) {
	items, err := iterate(c.self)
	if err != nil {
		return nil, err
	}
	by, sensitive := c.arg(2, "attribute", None), truth(c.arg(1, "case_sensitive", false))
	return sorted(items, truth(c.arg(0, "reverse", false)), func(v any) any {
		return foldUnless(sensitive, path(v, by))
	})
}

// path follows an attribute argument: a name with dots, or an index.
func path(v, by any) any {
	switch by := by.(type) {
	case string:
		for part := range strings.SplitSeq(by, ".") {
			key := any(part)
			if i, err := strconv.Atoi(part); err == nil {
				key = i
			}
			v, _ = item(v, key)
		}
	case int:
		v, _ = item(v, by)
	}
	return v
}

// edge is the first or last item; of nothing it is undefined.
func edge(v any, at int) (any, error) {
	items, err := iterate(v)
	if err != nil {
		return nil, err
	}
	return item(items, at)
}

func toInt(c *call) (any, error) {
	otherwise := c.arg(0, "default", 0)
	if s, ok := c.self.(string); ok {
		s = strings.TrimFunc(s, isSpace)
		if n, err := strconv.Atoi(s); err == nil {
			return n, nil
		}
		f, err := strconv.ParseFloat(s, 64)
		if err != nil || math.Abs(f) >= 1<<63 {
			return otherwise, nil
		}
		return int(f), nil
	}
	f, _, ok := toNumber(c.self)
	if !ok || math.Abs(f) >= 1<<63 || math.IsNaN(f) {
		return otherwise, nil
	}
	return int(f), nil
}

func toFloat(c *call) (any, error) {
	if s, ok := c.self.(string); ok {
		if f, err := strconv.ParseFloat(strings.TrimFunc(s, isSpace), 64); err == nil {
			return f, nil
		}
	} else if f, _, ok := toNumber(c.self); ok {
		return f, nil
	}
	return c.arg(0, "default", 0.0), nil
}

func absolute(c *call) (any, error) {
	f, whole, ok := toNumber(c.self)
	switch {
	case !ok:
		return nil, fmt.Errorf("abs: found %s, want a number", kindOf(c.self))
	case whole:
		return int(math.Abs(f)), nil
	}
	return math.Abs(f), nil
}

func round(c *call) (any, error) {
	f, _, ok := toNumber(c.self)
	digits, okDigits := c.arg(0, "precision", 0).(int)
	if !ok || !okDigits {
		return nil, fmt.Errorf("round: found %s, want a number", kindOf(c.self))
	}
	scale := math.Pow10(digits)
	switch c.arg(1, "method", "common") {
	case "ceil":
		return math.Ceil(f*scale) / scale, nil
	case "floor":
		return math.Floor(f*scale) / scale, nil
	}
	// The nearest decimal, halves to even, as Python's round does.
	return strconv.ParseFloat(strconv.FormatFloat(f, 'f', max(0, digits), 64), 64)
}

func indent(c *call) (any, error) {
	margin, ok := c.arg(0, "width", 4).(string)
	if n, isInt := c.arg(0, "width", 4).(int); isInt && n <= 1000 {
		margin, ok = strings.Repeat(" ", max(0, n)), true
	}
	if !ok {
		return nil, fmt.Errorf("indent: found %s as width, want an int or a str", kindOf(c.arg(0, "width", 4)))
	}
	lines := strings.Split(str(c.self), "\n")
	if err := fits(len(lines), len(margin)); err != nil {
		return nil, err
	}
	for i, line := range lines {
		if i == 0 && !truth(c.arg(1, "first", false)) || line == "" && !truth(c.arg(2, "blank", false)) {
			continue
		}
		lines[i] = margin + line
	}
	return strings.Join(lines, "\n"), nil
}

func itemsFilter(c *call) (any, error) {
	switch v := c.self.(type) {
	case nil:
		return []any{}, nil
	case Dict:
		return v.items(), nil
	}
	return nil, fmt.Errorf("items: found %s, want a dict", kindOf(c.self))
}

func join(c *call) (any, error) {
	items, err := iterate(c.self)
	parts := make([]string, len(items))
	for i, x := range items {
		parts[i] = str(path(x, c.arg(1, "attribute", None)))
	}
	if err == nil {
		err = fits(len(parts), len(str(c.arg(0, "d", ""))))
	}
	if err != nil {
		return nil, err
	}
	return strings.Join(parts, str(c.arg(0, "d", ""))), nil
}

// mapFilter takes an attribute of every item, or puts a filter on it.
func mapFilter(c *call) (any, error) {
	items, err := iterate(c.self)
	if err != nil {
		return nil, err
	}
	one := func(v any) (any, error) {
		v = path(v, c.kwargs["attribute"])
		if v == nil {
			v = c.arg(1, "default", nil)
		}
		return v, nil
	}
	if len(c.args) > 0 {
		f := filters[str(c.args[0])]
		if f == nil {
			return nil, fmt.Errorf("map: filter %q: want one of %s", str(c.args[0]), names(filters))
		}
		one = func(v any) (any, error) { return f(&call{self: v, args: c.args[1:], kwargs: c.kwargs}) }
	}
	out := make([]any, len(items))
	for i, x := range items {
		if out[i], err = one(x); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// selecting makes select, reject and their attr forms: of the items those for which the test holds, or does not.
func selecting(byAttribute, want bool) function {
	return func(c *call) (any, error) {
		items, err := iterate(c.self)
		args, by := c.args, any(None)
		if byAttribute {
			if len(args) == 0 {
				return nil, fmt.Errorf("found no argument, want the name of an attribute")
			}
			args, by = args[1:], args[0]
		}
		out := []any{}
		for _, x := range items {
			yes, err := holds(path(x, by), args)
			if err != nil {
				return nil, err
			}
			if yes == want {
				out = append(out, x)
			}
		}
		return out, err
	}
}

func holds(v any, args []any) (bool, error) {
	if len(args) == 0 {
		return truth(v), nil
	}
	return runTest(v, args[0], args[1:])
}

func extreme(v any, want int) (any, error) {
	items, err := iterate(v)
	var best any
	for i, x := range items {
		if i == 0 {
			best = x
			continue
		}
		order, err := compareValues(foldUnless(false, x), foldUnless(false, best))
		if err != nil {
			return nil, err
		}
		if order*want > 0 {
			best = x
		}
	}
	return best, err
}

func replace(c *call) (any, error) {
	n, ok := c.arg(2, "count", None).(int)
	if !ok {
		n = -1
	}
	s, old, with := str(c.self), str(c.arg(0, "old", "")), str(c.arg(1, "new", ""))
	if err := fits(strings.Count(s, old), len(with)); err != nil {
		return nil, err
	}
	return strings.Replace(s, old, with, n), nil
}

func reverse(c *call) (any, error) {
	return slice(c.self, []any{None, None, -1})
}

func sum(c *call) (any, error) {
	items, err := iterate(c.self)
	total := c.arg(1, "start", 0)
	for _, x := range items {
		if total, err = operator(&call{self: total, args: []any{"+", path(x, c.arg(0, "attribute", None))}}); err != nil {
			return nil, err
		}
	}
	return total, err
}

func toJSON(c *call) (any, error) {
	style := jsonStyle{oneLine: true, comma: ", ", colon: ": ", ascii: truth(c.arg(0, "ensure_ascii", false)), sortKeys: truth(c.arg(3, "sort_keys", false))}
	switch width := c.arg(1, "indent", None).(type) {
	case int:
		style.oneLine, style.comma, style.indent = false, ",", strings.Repeat(" ", max(0, min(width, 100)))
	case string:
		style.oneLine, style.comma, style.indent = false, ",", width
	}
	if separators, ok := c.arg(2, "separators", None).([]any); ok && len(separators) == 2 {
		style.comma, style.colon = str(separators[0]), str(separators[1])
	}
	return style.dumps(c.self, "")
}

func trim(c *call) (any, error) {
	return strip(str(c.self), c.arg(0, "chars", None), true, true), nil
}

// strip takes characters off both ends: those of set, or whitespace where set is None.
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

func unique(c *call) (any, error) {
	items, err := iterate(c.self)
	out, seen := []any{}, []any{}
	for _, x := range items {
		key := foldUnless(truth(c.arg(0, "case_sensitive", false)), path(x, c.arg(1, "attribute", None)))
		if yes, _ := contains(seen, key); !yes {
			out, seen = append(out, x), append(seen, key)
		}
	}
	return out, err
}

func words(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) })
}
