package jinja

import (
	"fmt"
	"strconv"
	"strings"
)

// An expr is an expression in the language that gonja reads faithfully: a base and the filters put upon it.
type expr struct {
	base    string
	filters []string
	name    string // the plain name it is, which may be called
}

// String is the text for gonja, safe in every place of a larger expression.
func (e expr) String() string {
	if len(e.filters) == 0 {
		return e.base
	}
	return "(" + e.base + " | " + strings.Join(e.filters, " | ") + ")"
}

func (e expr) pipe(filter string) expr {
	return expr{base: e.base, filters: append(e.filters, filter)}
}

const maxDepth = 100

// A grammar reads the tokens of one tag by Jinja2's grammar; its methods carry the names of the grammar's levels.
type grammar struct {
	toks  []tok
	pos   int
	depth int
}

func (p *grammar) peek() tok {
	if p.pos < len(p.toks) {
		return p.toks[p.pos]
	}
	return tok{}
}

func (p *grammar) is(kind tokKind, text string) bool { return p.peek() == tok{kind, text} }

// skip consumes the token where it stands next.
func (p *grammar) skip(kind tokKind, text string) bool {
	if p.is(kind, text) {
		p.pos++
		return true
	}
	return false
}

func (p *grammar) want(kind tokKind, text string) error {
	if p.skip(kind, text) {
		return nil
	}
	return fmt.Errorf("found %s, want %q", p.found(), text)
}

func (p *grammar) found() string {
	if t := p.peek(); t.kind != tokEnd {
		return strconv.Quote(t.text)
	}
	return "the end of the tag"
}

// whole reads an expression that fills the rest of the tag.
func (p *grammar) whole() (expr, error) {
	e, err := p.tuple()
	if err == nil && p.pos < len(p.toks) {
		err = fmt.Errorf("found %s, want the end of the tag", p.found())
	}
	return e, err
}

// tuple reads a, b, c without parentheses, or a single expression.
func (p *grammar) tuple() (expr, error) {
	first, err := p.condition()
	if err != nil || !p.is(tokOp, ",") {
		return first, err
	}
	items := []string{first.String()}
	for p.skip(tokOp, ",") && p.pos < len(p.toks) && !p.is(tokOp, ")") && !p.is(tokOp, "=") {
		e, err := p.condition()
		if err != nil {
			return expr{}, err
		}
		items = append(items, e.String())
	}
	return list(items), nil
}

func list(items []string) expr {
	return expr{base: "[" + strings.Join(items, ", ") + "]", filters: []string{"_list"}}
}

// condition is a if b else c. Lists of one carry the values through "and" and "or", which return their operand, so that only
// the chosen side is evaluated and its falsehood does not matter.
func (p *grammar) condition() (expr, error) {
	if p.depth++; p.depth > maxDepth {
		return expr{}, fmt.Errorf("expression nested more than %d deep", maxDepth)
	}
	defer func() { p.depth-- }()
	e, err := p.or()
	for err == nil && p.skip(tokName, "if") {
		e, err = p.choice(e)
	}
	return e, err
}

func (p *grammar) choice(yes expr) (expr, error) {
	test, err := p.or()
	if err != nil {
		return expr{}, err
	}
	no := expr{base: "_undefined"}
	if p.skip(tokName, "else") {
		if no, err = p.condition(); err != nil {
			return expr{}, err
		}
	}
	return expr{base: fmt.Sprintf("(%s and [%s] or [%s])", test, yes, no), filters: []string{"_pick"}}, nil
}

func (p *grammar) or() (expr, error) { return p.logical("or", p.and) }

func (p *grammar) and() (expr, error) { return p.logical("and", p.not) }

func (p *grammar) logical(word string, operand func() (expr, error)) (expr, error) {
	first, err := operand()
	if err != nil || !p.is(tokName, word) {
		return first, err
	}
	parts := []string{first.String()}
	for p.skip(tokName, word) {
		e, err := operand()
		if err != nil {
			return expr{}, err
		}
		parts = append(parts, e.String())
	}
	return expr{base: "(" + strings.Join(parts, " "+word+" ") + ")"}, nil
}

func (p *grammar) not() (expr, error) {
	nots := 0
	for p.skip(tokName, "not") {
		nots++
	}
	e, err := p.compare()
	for ; nots > 0; nots-- {
		e = e.pipe("_not")
	}
	return e, err
}

var comparisons = map[string]bool{"==": true, "!=": true, "<": true, "<=": true, ">": true, ">=": true}

// compare reads chains too: a < b < c.
func (p *grammar) compare() (expr, error) {
	e, err := p.sum()
	var args []string
	for err == nil {
		op := p.comparison()
		if op == "" {
			break
		}
		var right expr
		if right, err = p.sum(); err == nil {
			args = append(args, quote(op), right.String())
		}
	}
	if err != nil || args == nil {
		return e, err
	}
	return e.pipe("_compare(" + strings.Join(args, ", ") + ")"), nil
}

func (p *grammar) comparison() string {
	t := p.peek()
	switch {
	case t.kind == tokOp && comparisons[t.text], t == tok{tokName, "in"}:
		p.pos++
		return t.text
	case t == tok{tokName, "not"} && p.pos+1 < len(p.toks) && p.toks[p.pos+1] == tok{tokName, "in"}:
		p.pos += 2
		return "not in"
	}
	return ""
}

func (p *grammar) sum() (expr, error) { return p.binary(p.concat, "+", "-") }

func (p *grammar) concat() (expr, error) { return p.binary(p.product, "~") }

func (p *grammar) product() (expr, error) { return p.binary(p.power, "*", "/", "//", "%") }

func (p *grammar) power() (expr, error) {
	return p.binary(func() (expr, error) { return p.unary(true) }, "**")
}

// binary reads operands with left-associative operators between them.
func (p *grammar) binary(operand func() (expr, error), ops ...string) (expr, error) {
	e, err := operand()
	for err == nil {
		op := ""
		for _, o := range ops {
			if p.skip(tokOp, o) {
				op = o
				break
			}
		}
		if op == "" {
			break
		}
		var right expr
		if right, err = operand(); err == nil {
			e = e.pipe(fmt.Sprintf("_op(%s, %s)", quote(op), right))
		}
	}
	return e, err
}

// unary reads signs, a primary, what follows it and, for the outermost, filters and tests.
func (p *grammar) unary(filters bool) (e expr, err error) {
	sign := ""
	if t := p.peek(); t == (tok{tokOp, "-"}) || t == (tok{tokOp, "+"}) {
		if p.depth++; p.depth > maxDepth {
			return expr{}, fmt.Errorf("expression nested more than %d deep", maxDepth)
		}
		defer func() { p.depth-- }()
		p.pos++
		sign = t.text
		e, err = p.unary(false)
	} else if e, err = p.primary(); err == nil {
		e, err = p.postfix(e)
	}
	if err != nil {
		return expr{}, err
	}
	if sign != "" {
		e = e.pipe("_sign(" + quote(sign) + ")")
	}
	if filters {
		return p.filtersAndTests(e)
	}
	return e, nil
}

var constants = map[string]string{
	"true": "true", "True": "true", "false": "false", "False": "false", "none": "_none", "None": "_none",
}

func (p *grammar) primary() (expr, error) {
	t := p.peek()
	p.pos++
	switch {
	case t.kind == tokName && constants[t.text] != "":
		return expr{base: constants[t.text]}, nil
	case t.kind == tokName && !keywords[t.text]:
		return expr{base: nameOf(t.text), name: nameOf(t.text)}, nil
	case t.kind == tokString:
		return p.strings(t.text), nil
	case t.kind == tokInt || t.kind == tokFloat:
		return number(t)
	case t == tok{tokOp, "("}:
		return p.parenthesis()
	case t == tok{tokOp, "["}:
		items, err := p.items("]")
		return list(items), err
	case t == tok{tokOp, "{"}:
		return p.dictionary()
	}
	p.pos--
	return expr{}, fmt.Errorf("found %s, want an expression", p.found())
}

var keywords = map[string]bool{"and": true, "or": true, "not": true, "in": true, "is": true, "if": true, "else": true}

// nameOf keeps a template's names apart from gonja's constants and from the names used here.
func nameOf(name string) string {
	if name == "nil" || name == "self" || strings.HasPrefix(name, "_") {
		return "x" + name
	}
	return name
}

// strings joins adjacent literals, as Python does.
func (p *grammar) strings(value string) expr {
	for p.peek().kind == tokString {
		value += p.peek().text
		p.pos++
	}
	return expr{base: quote(value)}
}

func number(t tok) (expr, error) {
	if t.kind == tokInt {
		n, err := strconv.ParseInt(t.text, 10, 64)
		if err != nil {
			return expr{}, fmt.Errorf("integer %s: want -2^63 to 2^63-1", t.text)
		}
		return expr{base: strconv.FormatInt(n, 10)}, nil
	}
	f, err := strconv.ParseFloat(t.text, 64)
	if err != nil {
		return expr{}, fmt.Errorf("number %s: want a 64-bit float", t.text)
	}
	return expr{base: quote(t.text), filters: []string{"_float"}}, checkFloat(f)
}

func checkFloat(f float64) error {
	if f-f != 0 {
		return fmt.Errorf("number is not finite")
	}
	return nil
}

// quote writes a string so that gonja's reader, which knows only backslash escapes that Go knows, gives it back unchanged.
func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\x5c`, `"`, `\x22`, `'`, `\x27`, "\n", `\n`, "\r", `\r`).Replace(s) + `"`
}

func (p *grammar) parenthesis() (expr, error) {
	if p.skip(tokOp, ")") {
		return list(nil), nil
	}
	e, err := p.tuple()
	if err == nil {
		err = p.want(tokOp, ")")
	}
	e.name = ""
	return e, err
}

// items reads expressions between commas up to the closing bracket, a trailing comma allowed.
func (p *grammar) items(end string) ([]string, error) {
	var out []string
	for !p.skip(tokOp, end) {
		if len(out) > 0 {
			if err := p.want(tokOp, ","); err != nil {
				return nil, err
			}
			if p.skip(tokOp, end) {
				break
			}
		}
		e, err := p.condition()
		if err != nil {
			return nil, err
		}
		out = append(out, e.String())
	}
	return out, nil
}

func (p *grammar) dictionary() (expr, error) {
	var items []string
	for first := true; !p.skip(tokOp, "}"); first = false {
		if !first {
			if err := p.want(tokOp, ","); err != nil {
				return expr{}, err
			}
			if p.skip(tokOp, "}") {
				break
			}
		}
		for _, end := range []string{":", ""} {
			e, err := p.condition()
			if err == nil && end != "" {
				err = p.want(tokOp, end)
			}
			if err != nil {
				return expr{}, err
			}
			items = append(items, e.String())
		}
	}
	return expr{base: "[" + strings.Join(items, ", ") + "]", filters: []string{"_dict"}}, nil
}

// postfix reads .name, [index], [a:b:c] and calls.
func (p *grammar) postfix(e expr) (expr, error) {
	var err error
	for err == nil {
		switch {
		case p.skip(tokOp, "."):
			e, err = p.attribute(e)
		case p.skip(tokOp, "["):
			e, err = p.subscript(e)
		case p.is(tokOp, "("):
			e, err = p.call(e)
		default:
			return e, nil
		}
	}
	return expr{}, err
}

// attribute reads what follows a dot; where it is called at once it is a method.
func (p *grammar) attribute(e expr) (expr, error) {
	t := p.peek()
	p.pos++
	switch {
	case t.kind == tokInt:
		return e.pipe("_item(" + t.text + ")"), nil
	case t.kind == tokName && p.skip(tokOp, "("):
		args, err := p.arguments()
		return e.pipe("_method(" + strings.Join(append([]string{quote(t.text)}, args...), ", ") + ")"), err
	case t.kind == tokName:
		return e.pipe("_attr(" + quote(t.text) + ")"), nil
	}
	p.pos--
	return expr{}, fmt.Errorf("found %s after a dot, want a name", p.found())
}

func (p *grammar) subscript(e expr) (expr, error) {
	var parts [3]string
	n, filled := 0, false
	for ; ; n++ {
		if n == len(parts) {
			return expr{}, fmt.Errorf("slice of more than three parts")
		}
		parts[n] = "_none"
		if !p.is(tokOp, ":") && !p.is(tokOp, "]") {
			part, err := p.condition()
			if err != nil {
				return expr{}, err
			}
			parts[n], filled = part.String(), true
		}
		if !p.skip(tokOp, ":") {
			break
		}
	}
	if err := p.want(tokOp, "]"); err != nil {
		return expr{}, err
	}
	if n > 0 {
		for n++; n < len(parts); n++ {
			parts[n] = "_none"
		}
		return e.pipe("_slice(" + strings.Join(parts[:], ", ") + ")"), nil
	}
	if !filled {
		return expr{}, fmt.Errorf("found [], want an index")
	}
	return e.pipe("_item(" + parts[0] + ")"), nil
}

// call reads the call of a plain name: a global function or a macro.
func (p *grammar) call(e expr) (expr, error) {
	if e.name == "" || len(e.filters) > 0 {
		return expr{}, fmt.Errorf("call of something that is neither a function nor a method: not supported")
	}
	p.pos++
	args, err := p.argumentsOf(nameOf)
	return expr{base: e.name + "(" + strings.Join(args, ", ") + ")"}, err
}

func (p *grammar) arguments() ([]string, error) {
	return p.argumentsOf(func(key string) string { return key })
}

// argumentsOf reads a call's arguments after its parenthesis, by position and by name, and writes the names with rename.
func (p *grammar) argumentsOf(rename func(string) string) ([]string, error) {
	var out []string
	for !p.skip(tokOp, ")") {
		if len(out) > 0 {
			if err := p.want(tokOp, ","); err != nil {
				return nil, err
			}
			if p.skip(tokOp, ")") {
				break
			}
		}
		key := ""
		if t := p.peek(); t.kind == tokName && p.pos+1 < len(p.toks) && p.toks[p.pos+1] == (tok{tokOp, "="}) {
			key = rename(t.text) + " = "
			p.pos += 2
		}
		e, err := p.condition()
		if err != nil {
			return nil, err
		}
		out = append(out, key+e.String())
	}
	return out, nil
}

// filtersAndTests reads | filter, | filter(args), is test, is not test.
func (p *grammar) filtersAndTests(e expr) (expr, error) {
	var err error
	for err == nil {
		switch {
		case p.skip(tokOp, "|"):
			e, err = p.filter(e)
		case p.skip(tokName, "is"):
			e, err = p.test(e)
		case p.is(tokOp, "("):
			return expr{}, fmt.Errorf("call of a filter's result: not supported")
		default:
			return e, nil
		}
	}
	return expr{}, err
}

func (p *grammar) filter(e expr) (expr, error) {
	t := p.peek()
	if t.kind != tokName {
		return expr{}, fmt.Errorf("found %s after |, want a filter", p.found())
	}
	if filters[t.text] == nil {
		return expr{}, fmt.Errorf("filter %q: want one of %s", t.text, names(filters))
	}
	p.pos++
	if !p.skip(tokOp, "(") {
		return e.pipe(t.text), nil
	}
	args, err := p.arguments()
	if len(args) == 0 {
		return e.pipe(t.text), err
	}
	return e.pipe(t.text + "(" + strings.Join(args, ", ") + ")"), err
}

func (p *grammar) test(e expr) (expr, error) {
	negate := p.skip(tokName, "not")
	t := p.peek()
	if tests[t.text] == nil {
		return expr{}, fmt.Errorf("test %s: want one of %s", p.found(), names(tests))
	}
	p.pos++
	args, err := p.testArguments()
	if err != nil {
		return expr{}, err
	}
	e = e.pipe("_test(" + strings.Join(append([]string{quote(t.text)}, args...), ", ") + ")")
	if negate {
		e = e.pipe("_not")
	}
	return e, nil
}

// testArguments reads (args), or one primary without parentheses: x is divisibleby 3.
func (p *grammar) testArguments() ([]string, error) {
	if p.skip(tokOp, "(") {
		return p.arguments()
	}
	t := p.peek()
	opens := t.kind == tokOp && (t.text == "[" || t.text == "{")
	value := t.kind == tokString || t.kind == tokInt || t.kind == tokFloat || t.kind == tokName && !keywords[t.text]
	if !opens && !value {
		return nil, nil
	}
	e, err := p.primary()
	if err == nil {
		e, err = p.postfix(e)
	}
	return []string{e.String()}, err
}
