package jinja

import (
	"slices"
	"strconv"
	"strings"
)

// An expr computes a value.
type expr func(s *scope) any

// A link takes a value and hands on another: an operator with its right side, an attribute, a filter.
type link func(s *scope, v any) any

// chain applies links in a loop, so that a long chain needs no deep stack.
func chain(first expr, links []link) expr {
	if len(links) == 0 {
		return first
	}
	return func(s *scope) any {
		v := first(s)
		for _, f := range links {
			s.step(1)
			v = f(s, v)
		}
		return v
	}
}

func constant(v any) expr { return func(*scope) any { return v } }

// A parser reads a template by Jinja2's grammar; the methods for expressions carry the names of the grammar's levels.
type parser struct {
	chunk                  // which is read
	chunks []chunk         // not yet read
	pos    int             // in the chunk's tokens
	depth  int             // of brackets
	blocks int             // open statements
	loops  int             // open for statements, up to the innermost macro
	called *arguments      // of the last call that was read
	seen   map[string]bool // names that are read, since the innermost macro's beginning
}

func (p *parser) peek() tok {
	if p.pos < len(p.toks) {
		return p.toks[p.pos]
	}
	return tok{}
}

func (p *parser) is(kind tokKind, text string) bool { return p.peek() == tok{kind, text} }

// skip consumes the token if it is next.
func (p *parser) skip(kind tokKind, text string) bool {
	if p.is(kind, text) {
		p.pos++
		return true
	}
	return false
}

func (p *parser) want(kind tokKind, text string) {
	if !p.skip(kind, text) {
		panic(faultf("found %s, want %q", p.nextText(), text))
	}
}

func (p *parser) end() {
	if p.pos < len(p.toks) {
		panic(faultf("found %s, want the end of the tag", p.nextText()))
	}
}

func (p *parser) nextText() string {
	if t := p.peek(); t.kind != tokEnd {
		return strconv.Quote(t.text)
	}
	return "the end of the tag"
}

var constants = map[string]any{
	"true": true, "True": true, "false": false, "False": false, "none": None, "None": None,
}

var keywords = map[string]bool{"and": true, "or": true, "not": true, "in": true, "is": true, "if": true, "else": true}

func (p *parser) isName() bool {
	t := p.peek()
	_, isConstant := constants[t.text]
	return t.kind == tokName && !keywords[t.text] && !isConstant
}

// name reads a name that a template may set.
func (p *parser) name() string {
	if !p.isName() {
		panic(faultf("found %s, want a name", p.nextText()))
	}
	p.pos++
	return p.toks[p.pos-1].text
}

// deeper counts a level of nesting until the function that it returns is called.
func (p *parser) deeper() (leave func()) {
	if p.depth++; p.depth > maxDepth {
		panic(faultf("expression nested more than %d deep", maxDepth))
	}
	return func() { p.depth-- }
}

// tuple reads a, b, c without parentheses, or a single item.
func (p *parser) tuple(item func() expr) expr {
	first := item()
	if !p.is(tokOp, ",") {
		return first
	}
	items := []expr{first}
	for p.skip(tokOp, ",") && p.pos < len(p.toks) && !p.is(tokOp, ")") && !p.is(tokOp, "=") {
		items = append(items, item())
	}
	return tupleOf(items)
}

func list(items []expr) expr {
	return func(s *scope) any { return s.values(items) }
}

func tupleOf(items []expr) expr {
	return func(s *scope) any { return tuple(s.values(items)) }
}

func (s *scope) values(items []expr) []any {
	s.step(len(items))
	out := make([]any, len(items))
	for i, e := range items {
		out[i] = e(s)
	}
	return out
}

// condition reads a if b else c.
func (p *parser) condition() expr {
	defer p.deeper()()
	e := p.or()
	for p.skip(tokName, "if") {
		defer p.deeper()()
		yes, test, no := e, p.or(), constant(nil)
		if p.skip(tokName, "else") {
			no = p.condition()
		}
		e = func(s *scope) any {
			s.step(1)
			if truth(test(s)) {
				return yes(s)
			}
			return no(s)
		}
	}
	return e
}

func (p *parser) or() expr { return p.logical("or", p.and) }

func (p *parser) and() expr { return p.logical("and", p.not) }

func (p *parser) logical(word string, operand func() expr) expr {
	parts := []expr{operand()}
	for p.skip(tokName, word) {
		parts = append(parts, operand())
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return func(s *scope) (v any) {
		for _, part := range parts {
			s.step(1)
			if v = part(s); truth(v) == (word == "or") {
				break
			}
		}
		return v
	}
}

func (p *parser) not() expr {
	var nots []link
	for p.skip(tokName, "not") {
		nots = append(nots, func(_ *scope, v any) any { return !truth(v) })
	}
	return chain(p.compare(), nots)
}

// compare reads chains too: a < b < c.
func (p *parser) compare() expr {
	first := p.binary(0)
	var ops []string
	var operands []expr
	for op := p.comparison(); op != ""; op = p.comparison() {
		ops, operands = append(ops, op), append(operands, p.binary(0))
	}
	if ops == nil {
		return first
	}
	return func(s *scope) any {
		left := first(s)
		for i, op := range ops {
			right := operands[i](s)
			if !s.compare(op, left, right) {
				return false
			}
			left = right
		}
		return true
	}
}

func (p *parser) comparison() string {
	t := p.peek()
	switch {
	case t.kind == tokOp && strings.Contains(" == != < <= > >= ", " "+t.text+" "), t == tok{tokName, "in"}:
		p.pos++
		return t.text
	case t == tok{tokName, "not"} && p.pos+1 < len(p.toks) && p.toks[p.pos+1] == tok{tokName, "in"}:
		p.pos += 2
		return "not in"
	}
	return ""
}

// operators are left-associative; the later ones bind more tightly.
var operators = [][]string{{"+", "-"}, {"~"}, {"*", "/", "//", "%"}, {"**"}}

// binary reads operands with operators of one level between them.
func (p *parser) binary(level int) expr {
	if level == len(operators) {
		return p.filtersAndTests(p.unary())
	}
	first := p.binary(level + 1)
	var links []link
	for p.peek().kind == tokOp && slices.Contains(operators[level], p.peek().text) {
		op := p.peek().text
		p.pos++
		right := p.binary(level + 1)
		links = append(links, func(s *scope, left any) any { return s.operate(op, left, right(s)) })
	}
	return chain(first, links)
}

// unary reads signs, a primary and what follows it.
func (p *parser) unary() expr {
	for _, by := range []string{"-", "+"} {
		if p.skip(tokOp, by) {
			defer p.deeper()()
			return chain(p.unary(), []link{func(s *scope, v any) any { return sign(v, by) }})
		}
	}
	return p.postfix(p.primary())
}

func (p *parser) primary() expr {
	if p.isName() {
		return p.variable()
	}
	t := p.peek()
	p.pos++
	switch {
	case t.kind == tokName && !keywords[t.text]:
		return constant(constants[t.text])
	case t.kind == tokString:
		text := t.text
		for ; p.peek().kind == tokString; p.pos++ { // adjacent ones are one, as in Python
			text += p.peek().text
		}
		return constant(text)
	case t.kind == tokInt || t.kind == tokFloat:
		return number(t)
	case t == tok{tokOp, "("}:
		if p.skip(tokOp, ")") {
			return tupleOf(nil)
		}
		e := p.tuple(p.condition)
		p.want(tokOp, ")")
		return e
	case t == tok{tokOp, "["}:
		var items []expr
		p.series("]", func() { items = append(items, p.condition()) })
		return list(items)
	case t == tok{tokOp, "{"}:
		return p.dictionary()
	}
	p.pos--
	panic(faultf("found %s, want an expression", p.nextText()))
}

// variable reads a name, or the call of a macro or global function.
func (p *parser) variable() expr {
	name := p.name()
	p.seen[name] = true
	if !p.skip(tokOp, "(") {
		return func(s *scope) any { return s.lookup(name) }
	}
	if name == "lipsum" {
		panic(faultf("function lipsum: not supported"))
	}
	args := p.arguments()
	return func(s *scope) any {
		f := callable(s.lookup(name))
		if f == nil {
			panic(faultf("%s is not callable", name))
		}
		return args.call(s, nil).apply(f)
	}
}

// callable is what a call of v does, nil if nothing.
func callable(v any) function {
	switch v := v.(type) {
	case function:
		return v
	case dictClass:
		return makeDict
	case *loop:
		return v.recur
	}
	return nil
}

func number(t tok) expr {
	if t.kind == tokFloat {
		f, _ := strconv.ParseFloat(t.text, 64) // beyond the range it is infinite, as in Python
		return constant(f)
	}
	n, ok := readInt(t.text, 0)
	if !ok {
		panic(faultf("integer %s: want at most %d digits, without a leading 0", t.text, maxDigits))
	}
	return constant(n)
}

// series reads items between commas up to the closing bracket, a trailing comma allowed.
func (p *parser) series(end string, item func()) {
	for first := true; !p.skip(tokOp, end); first = false {
		if !first {
			p.want(tokOp, ",")
			if p.skip(tokOp, end) {
				break
			}
		}
		item()
	}
}

func (p *parser) dictionary() expr {
	var keys, values []expr
	p.series("}", func() {
		keys = append(keys, p.condition())
		p.want(tokOp, ":")
		values = append(values, p.condition())
	})
	return func(s *scope) any {
		d := Dict{}
		for i, key := range s.values(keys) {
			d = s.with(d, key, values[i](s))
		}
		return d
	}
}

// postfix reads .name, .name(args), [index] and [a:b:c].
func (p *parser) postfix(e expr) expr {
	var links []link
	for {
		switch {
		case p.skip(tokOp, "."):
			links = append(links, p.attribute())
		case p.skip(tokOp, "["):
			links = append(links, p.subscript())
		case p.is(tokOp, "("):
			panic(faultf("call of something that is neither a function nor a method: not supported"))
		default:
			return chain(e, links)
		}
	}
}

// attribute reads what follows a dot; with arguments it is a method.
func (p *parser) attribute() link {
	t := p.peek()
	if t.kind != tokName && t.kind != tokInt {
		panic(faultf("found %s after a dot, want a name", p.nextText()))
	}
	p.pos++
	if t.kind == tokInt {
		key := number(t)(nil)
		return func(s *scope, v any) any { return s.item(v, key) }
	}
	if !p.skip(tokOp, "(") {
		return func(s *scope, v any) any { return s.attribute(v, t.text) }
	}
	args := p.arguments()
	if missing := unsupported[t.text]; missing {
		panic(faultf("method %s: not supported", t.text))
	}
	return func(s *scope, v any) any {
		return args.call(s, v).textually(t.text, methodRules, s.methodOf(v, t.text))
	}
}

func (p *parser) subscript() link {
	var parts []expr
	for more := true; more; more = p.skip(tokOp, ":") {
		part := constant(None)
		if !p.is(tokOp, ":") && !p.is(tokOp, "]") {
			part = p.tuple(p.condition)
		} else if len(parts) == 0 && p.is(tokOp, "]") {
			panic(faultf("found [], want an index"))
		}
		parts = append(parts, part)
	}
	p.want(tokOp, "]")
	switch len(parts) {
	case 1:
		return func(s *scope, v any) any { return s.item(v, parts[0](s)) }
	case 2, 3:
		return func(s *scope, v any) any { return s.slice(v, s.values(parts)) }
	}
	panic(faultf("slice of more than three parts"))
}

// arguments are a call's values: by position, then by name.
type arguments struct {
	names  []string // empty for an argument by position; * and ** for a list and a dictionary of them
	values []expr
	caller *macro // the block of a call statement
	end    int    // the place behind them
}

func (a *arguments) call(s *scope, self any) *call {
	c := &call{run: s.run, self: self}
	for i, v := range s.values(a.values) {
		switch name := a.names[i]; name {
		case "":
			c.args = append(c.args, v)
		case "*":
			c.args = append(c.args, s.iterate(v)...)
		case "**":
			d, ok := v.(Dict)
			if !ok {
				panic(faultf("found %s after **, want a dict", kindOf(v)))
			}
			for _, e := range d {
				c.name(s.str(e.Key), e.Value)
			}
		default:
			c.name(name, v)
		}
	}
	if m := a.caller; m != nil {
		c.name("caller", function(func(c *call) any { return m.call(s, c) }))
	}
	return c
}

func (c *call) name(name string, v any) {
	c.step(len(c.kwargs) / passSteps)
	if _, twice := c.kwargs.get(name); twice {
		panic(faultf("argument %s is given twice", name))
	}
	c.kwargs = append(c.kwargs, Entry{name, v})
}

// arguments reads a call's arguments after its parenthesis.
func (p *parser) arguments() *arguments {
	a := &arguments{}
	p.series(")", func() {
		name := ""
		if p.peek().kind == tokName && p.pos+1 < len(p.toks) && p.toks[p.pos+1] == (tok{tokOp, "="}) {
			name = p.peek().text
			p.pos += 2
		} else if t := p.peek(); t == (tok{tokOp, "*"}) || t == (tok{tokOp, "**"}) {
			name = t.text
			p.pos++
		}
		if last := len(a.names) - 1; name == "" && last >= 0 && a.names[last] != "" {
			panic(faultf("found an argument without a name behind one with a name"))
		}
		a.names, a.values = append(a.names, name), append(a.values, p.condition())
	})
	a.end, p.called = p.pos, a
	return a
}

// filtersAndTests reads | filter, | filter(args), is test, is not test.
func (p *parser) filtersAndTests(e expr) expr {
	var links []link
	for {
		switch {
		case p.skip(tokOp, "|"):
			links = append(links, p.filter())
		case p.skip(tokName, "is"):
			links = append(links, p.test())
		default:
			return chain(e, links)
		}
	}
}

func (p *parser) filter() link {
	t := p.peek()
	if t.kind != tokName {
		panic(faultf("found %s after |, want a filter", p.nextText()))
	}
	f := filters[t.text]
	if f == nil {
		panic(faultf("filter %q: want one of %s", t.text, names(filters)))
	}
	p.pos++
	args := &arguments{}
	if p.skip(tokOp, "(") {
		args = p.arguments()
	}
	return func(s *scope, v any) any { return args.call(s, v).textually(t.text, filterRules, f) }
}

func (p *parser) test() link {
	want := !p.skip(tokName, "not")
	name := p.peek().text
	if tests[name] == nil {
		panic(faultf("test %s: want one of %s", p.nextText(), names(tests)))
	}
	p.pos++
	args := p.testArguments()
	return func(s *scope, v any) any { return s.holds(v, name, args.call(s, v).args) == want }
}

// testArguments reads (args), or one primary without parentheses: x is divisibleby 3.
func (p *parser) testArguments() *arguments {
	if p.skip(tokOp, "(") {
		return p.arguments()
	}
	t := p.peek()
	opens := t.kind == tokOp && strings.Contains("[{", t.text)
	value := t.kind == tokString || t.kind == tokInt || t.kind == tokFloat || t.kind == tokName && !keywords[t.text]
	if opens || value {
		return &arguments{names: []string{""}, values: []expr{p.postfix(p.primary())}}
	}
	return &arguments{}
}
