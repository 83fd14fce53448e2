package jinja

import "slices"

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
	before := r.out
	r.out = &writer{run: r, most: maxText}
	end := r.execute(body, s)
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
	targets         []string
	items, test     expr
	body, otherwise []statement
}

func parseFor(p *parser) action {
	f := forLoop{line: p.line, targets: p.targets()}
	p.want(tokName, "in")
	f.items = p.tuple(p.or)
	if p.skip(tokName, "if") {
		f.test = p.condition()
	}
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

func (f *forLoop) do(s *scope) signal {
	items := s.iterate(f.items(s))
	if f.test != nil {
		items = slices.DeleteFunc(slices.Clone(items), func(v any) bool { return !truth(f.test(f.pass(s, v))) })
	}
	if len(items) == 0 {
		return s.execute(f.otherwise, s.inner())
	}
	l := &loop{items: items}
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

func (s *scope) assign(targets []string, v any) {
	if len(targets) == 1 {
		s.vars[targets[0]] = v
		return
	}
	items := s.iterate(v)
	if v == nil || len(items) != len(targets) {
		panic(faultf("cannot unpack %s of %d into %d names", kindOf(v), len(items), len(targets)))
	}
	for i, name := range targets {
		s.vars[name] = items[i]
	}
}

// targets reads a, b or (a, b).
func (p *parser) targets() []string {
	brackets := p.skip(tokOp, "(")
	out := []string{p.name()}
	for p.skip(tokOp, ",") {
		out = append(out, p.name())
	}
	if brackets {
		p.want(tokOp, ")")
	}
	return out
}

// parseSet reads name = value, namespace.name = value, a, b = value, and the block form.
func parseSet(p *parser) action {
	targets, field := p.targets(), ""
	if len(targets) == 1 && p.skip(tokOp, ".") {
		field = p.name()
	}
	assign := func(s *scope, v any) {
		if field == "" {
			s.assign(targets, v)
			return
		}
		ns, ok := s.lookup(targets[0]).(namespace)
		if !ok {
			panic(faultf("cannot set .%s of %s: want a namespace", field, kindOf(s.lookup(targets[0]))))
		}
		ns[field] = v
	}
	if len(targets) == 1 && p.pos == len(p.toks) {
		body := p.rest("set")
		return func(s *scope) signal {
			text, end := s.capture(body, s.inner())
			if end == proceed {
				assign(s, text)
			}
			return end
		}
	}
	p.want(tokOp, "=")
	value := p.tuple(p.condition)
	p.end()
	return func(s *scope) signal { assign(s, value(s)); return proceed }
}

type macro struct {
	name   string
	params []string
	values []expr // defaults; nil without one
	body   []statement
}

func parseMacro(p *parser) action {
	m := macro{name: p.name()}
	p.want(tokOp, "(")
	for !p.skip(tokOp, ")") {
		if len(m.params) > 0 {
			p.want(tokOp, ",")
		}
		m.params, m.values = append(m.params, p.name()), append(m.values, nil)
		if p.skip(tokOp, "=") {
			m.values[len(m.values)-1] = p.condition()
		}
	}
	loops := p.loops
	p.loops = 0
	m.body = p.rest("macro")
	p.loops = loops
	return func(s *scope) signal {
		s.vars[m.name] = function(func(c *call) any { return m.call(s, c) })
		return proceed
	}
}

func (m *macro) call(s *scope, c *call) any {
	if c.macros++; c.macros > maxMacros {
		panic(faultf("macro %s: more than %d calls within calls", m.name, maxMacros))
	}
	line := c.line
	text, _ := c.capture(m.body, m.arguments(s, c))
	c.line, c.macros = line, c.macros-1
	return text
}

func (m *macro) arguments(s *scope, c *call) *scope {
	if len(c.args) > len(m.params) {
		panic(faultf("macro %s: found %d arguments, want at most %d", m.name, len(c.args), len(m.params)))
	}
	for _, e := range c.kwargs {
		if !slices.Contains(m.params, e.Key.(string)) {
			panic(faultf("macro %s has no parameter %s", m.name, e.Key))
		}
	}
	inner := s.inner()
	for i, name := range m.params {
		v, ok := c.lookup(i, name)
		if !ok && m.values[i] != nil {
			v = m.values[i](inner)
		}
		inner.vars[name] = v
	}
	return inner
}
