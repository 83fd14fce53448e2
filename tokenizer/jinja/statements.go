package jinja

import (
	"maps"
	"slices"
)

// A signal says how a statement ended.
type signal int

const (
	proceed signal = iota
	breaking
	continuing
)

type action func(s *scope) signal

type statement struct {
	line int
	do   action
}

func (r *run) execute(body []statement, s *scope) signal {
	for _, st := range body {
		r.line = st.line
		r.step(1)
		if end := st.do(s); end != proceed {
			return end
		}
	}
	return proceed
}

// capture returns what body writes.
func (r *run) capture(body []statement, s *scope) (string, signal) {
	return r.captured(func() signal { return r.execute(body, s) })
}

func (r *run) captured(do func() signal) (string, signal) {
	before := r.out
	r.out = &writer{run: r, most: maxText}
	end := do()
	text := r.out.String()
	r.out = before
	return text, end
}

var statements map[string]func(p *parser) action

func init() {
	statements = map[string]func(p *parser) action{
		"if":    parseIf,
		"for":   parseFor,
		"set":   parseSet,
		"macro": parseMacro,
		"generation": func(p *parser) action {
			body := p.rest("generation")
			return func(s *scope) signal { return s.generation(body) }
		},
		"call":     parseCall,
		"filter":   parseFilter,
		"with":     parseWith,
		"break":    loopControl(breaking),
		"continue": loopControl(continuing),
	}
}

// body reads statements up to one of ends, whose name it returns, or to the end of the template where name is empty.
func (p *parser) body(name string, ends ...string) (out []statement, end string) {
	line := p.line
	if p.blocks++; p.blocks > maxDepth+1 {
		panic(faultf("blocks nested more than %d deep", maxDepth))
	}
	defer func() { p.blocks-- }()
	for p.next() {
		if end := p.peek(); p.kind == tag && end.kind == tokName && slices.Contains(ends, end.text) {
			p.pos++
			p.tag = end.text
			return out, end.text
		}
		line := p.line
		out = append(out, statement{line, p.statement()})
	}
	if name != "" {
		p.place = place{line: line}
		panic(faultf("{%% %s %%} is not closed: want {%% end%s %%}", name, name))
	}
	return out, ""
}

// next makes the next chunk the one that is read.
func (p *parser) next() bool {
	if len(p.chunks) == 0 {
		return false
	}
	p.chunk, p.chunks, p.pos = p.chunks[0], p.chunks[1:], 0
	return true
}

func (p *parser) statement() action {
	switch p.kind {
	case text:
		text := p.text
		return func(s *scope) signal { s.out.emit(text); return proceed }
	case output:
		e := p.tuple(p.condition)
		p.end()
		return func(s *scope) signal { s.print(s.out, e(s)); return proceed }
	}
	parse := statements[p.peek().text]
	if p.peek().kind != tokName || parse == nil {
		panic(faultf("statement %s: want one of %s, raw, or the end of what is open", p.nextText(), names(statements)))
	}
	p.tag = p.peek().text
	p.pos++
	return parse(p)
}

// generation writes what the model says, and marks where. As in transformers, within a macro or a set block the stretch
// begins where the template's own text is.
func (s *scope) generation(body []statement) signal {
	from, out := s.base.Len(), s.out.Len()
	end := s.execute(body, s.inner())
	s.marked = append(s.marked, Stretch{from, from + s.out.Len() - out})
	return end
}

// rest reads a block's statements and its end.
func (p *parser) rest(name string) []statement {
	p.end()
	body, _ := p.body(name, "end"+name)
	p.end()
	return body
}

func loopControl(end signal) func(p *parser) action {
	return func(p *parser) action {
		if p.loops == 0 {
			panic(faultf("outside of a loop"))
		}
		p.end()
		return func(*scope) signal { return end }
	}
}

// A branch is an if, elif or else.
type branch struct {
	line int
	test expr
	body []statement
}

func parseIf(p *parser) action {
	var branches []branch
	for end := "elif"; end != "endif"; {
		b := branch{line: p.line}
		ends := []string{"endif"}
		if end == "elif" {
			b.test, ends = p.tuple(p.condition), []string{"elif", "else", "endif"}
		}
		p.end()
		b.body, end = p.body("if", ends...)
		branches = append(branches, b)
	}
	p.end()
	return func(s *scope) signal {
		for _, b := range branches {
			s.line = b.line
			s.step(1)
			if b.test == nil || truth(b.test(s)) {
				return s.execute(b.body, s)
			}
		}
		return proceed
	}
}

type forLoop struct {
	line            int
	targets         target
	items, test     expr
	body, otherwise []statement
	recursive       bool
}

func parseFor(p *parser) action {
	f := forLoop{line: p.line, targets: p.targets(false)}
	p.want(tokName, "in")
	f.items = p.tuple(p.or)
	if p.skip(tokName, "if") {
		f.test = p.condition()
	}
	f.recursive = p.skip(tokName, "recursive")
	p.end()
	p.loops++
	var end string
	f.body, end = p.body("for", "else", "endfor")
	p.loops--
	if end == "else" {
		f.otherwise = p.rest("for")
	} else {
		p.end()
	}
	return f.do
}

func (f *forLoop) do(s *scope) signal { return f.over(s, f.items(s), 0) }

// over runs the loop over what v has; depth is how many calls of the loop are around it.
func (f *forLoop) over(s *scope, v any, depth int) signal {
	items := s.iterate(v)
	if f.test != nil {
		items = slices.DeleteFunc(slices.Clone(items), func(v any) bool { return !truth(f.test(f.pass(s, v))) })
	}
	if len(items) == 0 {
		return s.execute(f.otherwise, s.inner())
	}
	l := &loop{items: items, depth: depth}
	if f.recursive {
		l.recur = func(c *call) any {
			return c.within("loop", func() (string, signal) {
				return c.captured(func() signal { return f.over(s, c.arg(0, "iterable", nil), depth+1) })
			})
		}
	}
	for i, v := range items {
		l.at = i
		inner := f.pass(s, v)
		inner.vars["loop"] = l
		if s.execute(f.body, inner) == breaking {
			break
		}
	}
	return proceed
}

// pass makes the scope of one item.
func (f *forLoop) pass(s *scope, v any) *scope {
	s.line = f.line
	s.step(passSteps)
	inner := s.inner()
	inner.assign(f.targets, v)
	return inner
}

// A target is what an assignment gives a value: a name, a field of a namespace, or parts.
type target struct {
	name, field string
	parts       []target
}

func (s *scope) assign(t target, v any) {
	if t.field != "" {
		ns, ok := s.lookup(t.name).(namespace)
		if !ok {
			panic(faultf("cannot set .%s of %s: want a namespace", t.field, kindOf(s.lookup(t.name))))
		}
		ns.set(t.field, v)
		return
	}
	if t.parts == nil {
		s.vars[t.name] = v
		return
	}
	items := s.iterate(v)
	if v == nil || len(items) != len(t.parts) {
		panic(faultf("cannot unpack %s of %d into %d names", kindOf(v), len(items), len(t.parts)))
	}
	for i, part := range t.parts {
		s.assign(part, items[i])
	}
}

// targets reads a, b or (a, b) up to one of the tokens that end it.
func (p *parser) targets(fields bool) target {
	first := p.target(fields)
	if !p.is(tokOp, ",") {
		return first
	}
	out := target{parts: []target{first}}
	for p.skip(tokOp, ",") && (p.isName() || p.is(tokOp, "(")) {
		out.parts = append(out.parts, p.target(fields))
	}
	return out
}

func (p *parser) target(fields bool) target {
	defer p.deeper()()
	if p.skip(tokOp, "(") {
		out := p.targets(fields)
		p.want(tokOp, ")")
		return out
	}
	out := target{name: p.name()}
	if fields && p.skip(tokOp, ".") {
		out.field = p.name()
	}
	return out
}

// parseSet reads name = value, namespace.name = value, a, b = value, and the block form, to which filters may belong.
func parseSet(p *parser) action {
	to := p.targets(true)
	if !p.is(tokOp, "=") && to.parts == nil {
		filters := p.filters()
		body := p.rest("set")
		return func(s *scope) signal {
			text, end := s.capture(body, s.inner())
			if end == proceed {
				s.assign(to, filters(s, text))
			}
			return end
		}
	}
	p.want(tokOp, "=")
	value := p.tuple(p.condition)
	p.end()
	return func(s *scope) signal { s.assign(to, value(s)); return proceed }
}

// filters reads | filter | filter.
func (p *parser) filters() link {
	var links []link
	for p.skip(tokOp, "|") {
		links = append(links, p.filter())
	}
	return func(s *scope, v any) any { return chain(constant(v), links)(s) }
}

// parseFilter reads a block whose text goes through filters.
func parseFilter(p *parser) action {
	first, more := p.filter(), p.filters()
	body := p.rest("filter")
	return func(s *scope) signal {
		text, end := s.capture(body, s.inner())
		v := more(s, first(s, text))
		if !isText(v) {
			panic(faultf("found %s, want a filter that gives a str", kindOf(v)))
		}
		s.print(s.out, v)
		return end
	}
}

// parseWith reads names that a block has; their values see what is outside.
func parseWith(p *parser) action {
	var targets []target
	var values []expr
	for p.pos < len(p.toks) {
		if len(targets) > 0 {
			p.want(tokOp, ",")
		}
		targets = append(targets, p.target(false))
		p.want(tokOp, "=")
		values = append(values, p.condition())
	}
	body := p.rest("with")
	return func(s *scope) signal {
		inner := s.inner()
		for i, v := range s.values(values) {
			inner.assign(targets[i], v)
		}
		return s.execute(body, inner)
	}
}

type macro struct {
	name    string
	params  []string
	values  []expr // defaults; nil without one
	body    []statement
	special map[string]bool // which of varargs, kwargs and caller the body reads
}

func parseMacro(p *parser) action {
	m := &macro{name: p.name()}
	p.want(tokOp, "(")
	m.parameters(p)
	m.read(p, "macro")
	return func(s *scope) signal {
		s.vars[m.name] = function(func(c *call) any { return m.call(s, c) })
		return proceed
	}
}

func (m *macro) parameters(p *parser) {
	for !p.skip(tokOp, ")") {
		if len(m.params) > 0 {
			p.want(tokOp, ",")
		}
		m.params, m.values = append(m.params, p.name()), append(m.values, nil)
		if p.skip(tokOp, "=") {
			m.values[len(m.values)-1] = p.condition()
		} else if n := len(m.values); n > 1 && m.values[n-2] != nil {
			panic(faultf("parameter %s without a default behind one with a default", m.params[n-1]))
		}
	}
}

func (m *macro) read(p *parser, end string) {
	loops, seen := p.loops, p.seen
	p.loops, p.seen = 0, map[string]bool{}
	m.body = p.rest(end)
	m.special = p.seen
	maps.Copy(seen, p.seen)
	p.loops, p.seen = loops, seen
}

// parseCall reads the call of a macro whose name caller is the block.
func parseCall(p *parser) action {
	m := &macro{name: "caller"}
	if p.skip(tokOp, "(") {
		m.parameters(p)
	}
	value := p.postfix(p.primary())
	if p.called == nil || p.called.end != p.pos {
		panic(faultf("found %s, want the call of a macro", p.nextText()))
	}
	p.called.caller = m
	m.read(p, "call")
	return func(s *scope) signal { s.print(s.out, value(s)); return proceed }
}

func (m *macro) call(s *scope, c *call) any {
	return c.within("macro "+m.name, func() (string, signal) { return c.capture(m.body, m.arguments(s, c)) })
}

// within bounds calls within calls.
func (c *call) within(name string, do func() (string, signal)) any {
	if c.macros++; c.macros > maxMacros {
		panic(faultf("%s: more than %d calls within calls", name, maxMacros))
	}
	line := c.line
	text, _ := do()
	c.line, c.macros = line, c.macros-1
	return text
}

func (m *macro) arguments(s *scope, c *call) *scope {
	extra, named := tuple{}, Dict{}
	if len(c.args) > len(m.params) {
		if !m.special["varargs"] {
			panic(faultf("macro %s: found %d arguments, want at most %d", m.name, len(c.args), len(m.params)))
		}
		extra = tuple(c.args[len(m.params):])
	}
	var caller any
	for _, e := range c.kwargs {
		at := slices.Index(m.params, e.Key.(string))
		switch {
		case at >= 0 && at < len(c.args):
			panic(faultf("macro %s: parameter %s is given twice", m.name, e.Key))
		case at >= 0:
		case e.Key == "caller" && m.special["caller"]:
			caller = e.Value
		case !m.special["kwargs"]:
			panic(faultf("macro %s has no parameter %s", m.name, e.Key))
		default:
			named = append(named, e)
		}
	}
	inner := s.inner()
	for name, v := range map[string]any{"varargs": extra, "kwargs": named, "caller": caller} {
		if m.special[name] {
			inner.vars[name] = v
		}
	}
	for i, name := range m.params {
		v, ok := c.lookup(i, name)
		if !ok && m.values[i] != nil {
			v = m.values[i](inner)
		}
		inner.vars[name] = v
	}
	return inner
}
