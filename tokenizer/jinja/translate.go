package jinja

import (
	"fmt"
	"strings"
)

// translate writes a template again in the part of gonja's language that means what Jinja2 means.
func translate(src string) (string, error) {
	chunks, err := scan(src)
	if err != nil {
		return "", err
	}
	t := &translator{}
	for _, c := range chunks {
		if err := t.chunk(c); err != nil {
			return "", fmt.Errorf("line %d: %w", c.line, err)
		}
	}
	if n := len(t.open); n > 0 {
		return "", fmt.Errorf("line %d: {%% %s %%} is not closed: want {%% end%s %%}", t.open[n-1].line, t.open[n-1].name, t.open[n-1].name)
	}
	return t.out.String(), nil
}

type translator struct {
	out  strings.Builder
	open []block
	temp int // variables made up so far
}

// A block is a statement that waits for its end.
type block struct {
	name  string
	line  int
	loops int // for loops around it, itself included
}

func (t *translator) chunk(c chunk) error {
	switch c.kind {
	case text:
		// As a string, so that no gonja rule for text applies.
		fmt.Fprintf(&t.out, "{{ %s }}", quote(c.text))
	case output:
		p := &grammar{toks: c.toks}
		e, err := p.whole()
		if err != nil {
			return err
		}
		fmt.Fprintf(&t.out, "{{ %s }}", e.pipe("_print"))
	default:
		return t.statement(c)
	}
	return nil
}

type statementFunc func(t *translator, p *grammar, line int) error

var statements map[string]statementFunc

func init() {
	statements = map[string]statementFunc{
		"if":            opening("if", ifTag),
		"elif":          elifTag,
		"else":          elseTag,
		"endif":         closing("if", "{% endif %}"),
		"for":           opening("for", forTag),
		"endfor":        closing("for", "{% endfor %}"),
		"set":           setTag,
		"endset":        closing("set", "{% endset %}"),
		"macro":         opening("macro", macroTag),
		"endmacro":      closing("macro", "{% endmacro %}"),
		"generation":    opening("generation", nothing),
		"endgeneration": closing("generation", ""),
		"break":         loopControl("break"),
		"continue":      loopControl("continue"),
	}
}

func (t *translator) statement(c chunk) error {
	p := &grammar{toks: c.toks}
	name := p.peek()
	if name.kind != tokName || statements[name.text] == nil {
		return fmt.Errorf("statement %s: want one of %s, raw", p.found(), names(statements))
	}
	p.pos++
	if err := statements[name.text](t, p, c.line); err != nil {
		return fmt.Errorf("{%% %s %%}: %w", name.text, err)
	}
	if p.pos < len(p.toks) {
		return fmt.Errorf("{%% %s %%}: found %s, want the end of the tag", name.text, p.found())
	}
	return nil
}

func (t *translator) push(name string, line int) error {
	if len(t.open) == maxDepth {
		return fmt.Errorf("blocks nested more than %d deep", maxDepth)
	}
	b := block{name: name, line: line}
	if len(t.open) > 0 && name != "macro" {
		b.loops = t.open[len(t.open)-1].loops
	}
	if name == "for" {
		b.loops++
	}
	t.open = append(t.open, b)
	return nil
}

func opening(name string, f statementFunc) statementFunc {
	return func(t *translator, p *grammar, line int) error {
		if err := t.push(name, line); err != nil {
			return err
		}
		return f(t, p, line)
	}
}

func closing(name, text string) statementFunc {
	return func(t *translator, _ *grammar, _ int) error {
		if !t.inside(name) {
			return fmt.Errorf("no {%% %s %%} to close", name)
		}
		t.open = t.open[:len(t.open)-1]
		t.out.WriteString(text)
		return nil
	}
}

// inside says whether the innermost open block has that name.
func (t *translator) inside(name string) bool {
	return len(t.open) > 0 && t.open[len(t.open)-1].name == name
}

func nothing(*translator, *grammar, int) error { return nil }

func loopControl(name string) statementFunc {
	return func(t *translator, _ *grammar, _ int) error {
		if len(t.open) == 0 || t.open[len(t.open)-1].loops == 0 {
			return fmt.Errorf("outside of a loop")
		}
		fmt.Fprintf(&t.out, "{%% %s %%}", name)
		return nil
	}
}

func ifTag(t *translator, p *grammar, _ int) error {
	e, err := p.tuple()
	fmt.Fprintf(&t.out, "{%% if %s %%}", e)
	return err
}

func elifTag(t *translator, p *grammar, _ int) error {
	if !t.inside("if") {
		return fmt.Errorf("no {%% if %%} around it")
	}
	e, err := p.tuple()
	fmt.Fprintf(&t.out, "{%% elif %s %%}", e)
	return err
}

func elseTag(t *translator, _ *grammar, _ int) error {
	if !t.inside("if") && !t.inside("for") {
		return fmt.Errorf("no {%% if %%} or {%% for %%} around it")
	}
	t.out.WriteString("{% else %}")
	return nil
}

// forTag writes the iterable through _iter, which gives a list of the items, or of lists of as many as there are targets.
func forTag(t *translator, p *grammar, _ int) error {
	targets, err := p.targets()
	if err != nil {
		return err
	}
	if len(targets) > 2 {
		return fmt.Errorf("%d targets: want one or two", len(targets))
	}
	if err := p.want(tokName, "in"); err != nil {
		return err
	}
	items, err := p.or()
	if err != nil {
		return err
	}
	filter := ""
	if p.skip(tokName, "if") {
		test, err := p.condition()
		if err != nil {
			return err
		}
		filter = " if " + test.String()
	}
	fmt.Fprintf(&t.out, "{%% for %s in %s%s %%}", strings.Join(targets, ", "), items.pipe(fmt.Sprintf("_iter(%d)", len(targets))), filter)
	return nil
}

// targets reads a, b or (a, b).
func (p *grammar) targets() ([]string, error) {
	var out []string
	brackets := p.skip(tokOp, "(")
	for len(out) == 0 || p.skip(tokOp, ",") {
		t := p.peek()
		if t.kind != tokName || keywords[t.text] || constants[t.text] != "" {
			return nil, fmt.Errorf("found %s, want a name", p.found())
		}
		p.pos++
		out = append(out, nameOf(t.text))
	}
	if brackets {
		return out, p.want(tokOp, ")")
	}
	return out, nil
}

// setTag handles name = value, namespace.name = value, a, b = value, and the block form.
func setTag(t *translator, p *grammar, line int) error {
	targets, err := p.targets()
	if err != nil {
		return err
	}
	if len(targets) == 1 && p.skip(tokOp, ".") {
		if p.peek().kind != tokName {
			return fmt.Errorf("found %s after a dot, want a name", p.found())
		}
		targets[0] += "." + p.peek().text
		p.pos++
	}
	if len(targets) == 1 && p.pos == len(p.toks) {
		fmt.Fprintf(&t.out, "{%% set %s %%}", targets[0])
		return t.push("set", line)
	}
	if err := p.want(tokOp, "="); err != nil {
		return err
	}
	value, err := p.tuple()
	if err != nil {
		return err
	}
	t.assign(targets, value)
	return nil
}

func (t *translator) assign(targets []string, value expr) {
	if len(targets) == 1 {
		fmt.Fprintf(&t.out, "{%% set %s = %s %%}", targets[0], value)
		return
	}
	t.temp++
	temp := fmt.Sprintf("_temp%d", t.temp)
	fmt.Fprintf(&t.out, "{%% set %s = %s %%}", temp, value.pipe(fmt.Sprintf("_unpack(%d)", len(targets))))
	for i, target := range targets {
		fmt.Fprintf(&t.out, "{%% set %s = (%s | _item(%d)) %%}", target, temp, i)
	}
}

func macroTag(t *translator, p *grammar, _ int) error {
	name := p.peek()
	if name.kind != tokName || keywords[name.text] || constants[name.text] != "" {
		return fmt.Errorf("found %s, want the macro's name", p.found())
	}
	p.pos++
	if err := p.want(tokOp, "("); err != nil {
		return err
	}
	var params []string
	for !p.skip(tokOp, ")") {
		param, err := p.parameter(len(params) == 0)
		if err != nil {
			return err
		}
		params = append(params, param)
	}
	fmt.Fprintf(&t.out, "{%% macro %s(%s) %%}", nameOf(name.text), strings.Join(params, ", "))
	return nil
}

// parameter reads name or name=default.
func (p *grammar) parameter(first bool) (string, error) {
	if !first {
		if err := p.want(tokOp, ","); err != nil {
			return "", err
		}
	}
	t := p.peek()
	if t.kind != tokName || keywords[t.text] || constants[t.text] != "" {
		return "", fmt.Errorf("found %s, want a parameter's name", p.found())
	}
	p.pos++
	if !p.skip(tokOp, "=") {
		return nameOf(t.text), nil
	}
	e, err := p.condition()
	return nameOf(t.text) + " = " + e.String(), err
}
