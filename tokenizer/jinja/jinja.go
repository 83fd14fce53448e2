// Package jinja renders chat templates as transformers does: Jinja2 with trim_blocks and lstrip_blocks on, loop
// controls, namespace, raise_exception, strftime_now and a tojson that prints like Python's json.dumps.
//
// scan cuts the source into text and tags, the parser turns tags into functions, and Render calls these. Values keep
// Python's meaning: undefined is nil, None is the constant None, numbers are int, *big.Int and float64, a list is
// []any, a dictionary is Dict, what a filter hands out piece by piece is a view. No template reads a file, changes a
// value but a namespace, or exceeds the bounds below.
//
// A fault in a template is a panic inside the package; Compile and Render return it as an error that names the line.
package jinja

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
)

// Bounds on what a template may ask for; chat templates stay far below them.
const (
	maxSource  = 1 << 20 // bytes of template
	maxSteps   = 1 << 22 // operations, calls, items of lists and stretches of stepBytes
	passSteps  = 16      // steps of a pass through a loop
	stepBytes  = 128     // bytes of text that are read or written in one step
	maxText    = 1 << 26 // bytes of a str
	maxOutput  = 1 << 28 // bytes rendered
	maxMacros  = 100     // calls within calls
	maxDepth   = 100     // brackets or blocks within each other
	maxMessage = 1000    // bytes of an error
	maxNested  = 1000    // lists and dictionaries within each other
)

// maxTime bounds a rendering too, since the steps of some functions take a hundred times as long as others'. The clock
// is read every clockSteps.
var maxTime = 5 * time.Second

const clockSteps = 1 << 14

// A Template is compiled once and may be rendered by many goroutines at the same time.
type Template struct{ body []statement }

// An Exception is what a template raised with raise_exception.
type Exception struct{ Message string }

func (e *Exception) Error() string { return printable("the chat template refuses: " + e.Message) }

// A fault is what the package panics with.
type fault struct{ error }

func faultf(format string, args ...any) fault {
	return fault{errors.New(printable(fmt.Sprintf(format, args...)))}
}

// printable makes a message of a template's text fit for a terminal: short, without control characters.
func printable(message string) string {
	if len(message) > maxMessage {
		message = message[:maxMessage] + " ..."
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, message)
}

// A place is where a fault is.
type place struct {
	line int    // from 1
	tag  string // the statement's name while the template is compiled
}

func (p place) String() string {
	if p.tag != "" {
		return fmt.Sprintf("line %d: {%% %s %%}", p.line, p.tag)
	}
	return fmt.Sprintf("line %d", p.line)
}

// recoverError turns a panic into an error with its place.
func recoverError(err *error, at *place) {
	var raised *Exception
	switch p := recover().(type) {
	case nil:
	case fault:
		*err = p.error
		if !errors.As(p.error, &raised) {
			*err = fmt.Errorf("%s: %w", *at, p.error)
		}
	default:
		*err = fmt.Errorf("%s: template engine: %v", *at, p)
	}
}

// Compile reads a template. Its errors name the line.
func Compile(source string) (t *Template, err error) {
	if len(source) > maxSource {
		return nil, fmt.Errorf("template of %d bytes: want at most %d", len(source), maxSource)
	}
	p := &parser{seen: map[string]bool{}}
	defer recoverError(&err, &p.place)
	p.chunks = scan(source, &p.place)
	body, _ := p.body("")
	return &Template{body}, nil
}

// Render runs the template with vars, which go through Of. now is what strftime_now prints.
func (t *Template) Render(vars map[string]any, now time.Time) (text string, err error) {
	text, _, err = t.RenderMarked(vars, now)
	return text, err
}

// A Stretch is text[From:To] of what a template wrote.
type Stretch struct{ From, To int }

// RenderMarked is Render with the stretches that {% generation %} blocks wrote, in the order in which they ended.
func (t *Template) RenderMarked(vars map[string]any, now time.Time) (text string, marked []Stretch, err error) {
	r := &run{now: now, until: time.Now().Add(maxTime)}
	s := &scope{run: r, vars: map[string]any{}}
	for name, v := range vars {
		if s.vars[name], err = Of(v); err != nil {
			return "", nil, fmt.Errorf("template variable %s: %w", name, err)
		}
	}
	defer recoverError(&err, &r.place)
	r.out = &writer{run: r, most: maxOutput}
	r.base = r.out
	r.execute(t.body, s)
	return r.out.String(), r.marked, nil
}

// A run is one rendering.
type run struct {
	place
	now    time.Time
	out    *writer
	base   *writer // what the template itself writes into, outside of captured text
	marked []Stretch
	steps  int
	until  time.Time // when the rendering must be done
	read   int       // the steps when the clock was last read
	macros int       // calls that have not returned
}

func (r *run) step(n int) {
	if r.steps += n; r.steps > maxSteps {
		panic(faultf("template takes more than %d steps", maxSteps))
	}
	if r.steps-r.read >= clockSteps {
		if r.read = r.steps; time.Now().After(r.until) {
			panic(faultf("template takes more than %v", maxTime))
		}
	}
}

// fits counts the steps of a text of n pieces of size bytes, and refuses one that is too long before it is built.
func (r *run) fits(n, size int) {
	if float64(n)*float64(size) > maxText {
		panic(tooLong(maxText))
	}
	r.step(max(0, n) * size / stepBytes)
}

func tooLong(most int) fault { return faultf("template builds a str of more than %d bytes", most) }

// A writer collects text up to a bound.
type writer struct {
	strings.Builder
	run  *run
	most int
}

func (w *writer) emit(s string) {
	w.run.step(len(s) / stepBytes)
	if w.Len()+len(s) > w.most {
		panic(tooLong(w.most))
	}
	w.WriteString(s)
}

// text returns what write puts into a writer.
func (r *run) text(write func(w *writer)) string {
	w := &writer{run: r, most: maxText}
	write(w)
	return w.String()
}

// A scope holds the variables of a loop's pass, a macro's call or a block.
type scope struct {
	*run
	vars   map[string]any
	parent *scope
}

func (s *scope) inner() *scope { return &scope{run: s.run, vars: map[string]any{}, parent: s} }

func (s *scope) lookup(name string) any {
	for ; s != nil; s = s.parent {
		if v, ok := s.vars[name]; ok {
			return v
		}
	}
	return globals[name]
}

// A call holds the arguments of a filter, method, macro or global function.
type call struct {
	*run
	self   any // what is before the | or dot
	args   []any
	kwargs Dict
	safe   bool // self is a markup
}

type function func(c *call) any

// apply calls f and counts its steps.
func (c *call) apply(f function) any {
	c.step(1 + textSize(c.self)/stepBytes)
	v := f(c)
	c.step(textSize(v) / stepBytes)
	return v
}

func textSize(v any) int {
	s, _ := asText(v)
	return len(s)
}

// rules says of filters or methods what they make of safe text: those in keeps give safe text, those in raw see it.
type rules struct{ keeps, raw map[string]bool }

// textually applies a filter or method to the text of a markup.
func (c *call) textually(name string, of rules, f function) any {
	text, safe := c.self.(markup)
	if !safe || of.raw[name] {
		return c.apply(f)
	}
	c.self, c.safe = string(text), of.keeps[name]
	v := c.apply(f)
	if !c.safe {
		return v
	}
	if items, ok := asList(v); ok {
		for i := range items {
			items[i] = like(text, items[i].(string))
		}
	}
	if s, ok := v.(string); ok {
		return markup(s)
	}
	return v
}

func set(words string) map[string]bool {
	out := map[string]bool{}
	for word := range strings.FieldsSeq(words) {
		out[word] = true
	}
	return out
}

// arg returns the argument at position i or of that name, or otherwise.
func (c *call) arg(i int, name string, otherwise any) any {
	if v, ok := c.lookup(i, name); ok {
		return v
	}
	return otherwise
}

func (c *call) lookup(i int, name string) (any, bool) {
	if i < len(c.args) {
		return c.args[i], true
	}
	return c.kwargs.get(name)
}

func (c *call) textArg(i int, name string) string { return c.str(c.arg(i, name, "")) }

func (c *call) flag(i int, name string) bool { return truth(c.arg(i, name, false)) }

var globals = map[string]any{
	"raise_exception": function(func(c *call) any { panic(fault{&Exception{c.textArg(0, "message")}}) }),
	"strftime_now": function(func(c *call) any {
		format := c.textArg(0, "format")
		c.fits(len(format), 16)
		return strftime(c.now, format)
	}),
	"range":     function(makeRange),
	"namespace": function(makeNamespace),
	"dict":      dictClass{},
	"joiner":    function(makeJoiner),
	"cycler":    function(makeCycler),
}

type dictClass struct{}

func makeJoiner(c *call) any {
	separator, used := c.arg(0, "sep", ", "), false
	return function(func(*call) any {
		if !used {
			used = true
			return ""
		}
		return separator
	})
}

type cycler struct {
	items []any
	at    int
}

func makeCycler(c *call) any {
	if len(c.args) == 0 {
		panic(faultf("cycler: found no argument, want one or more"))
	}
	return &cycler{items: c.args}
}

func makeRange(c *call) any {
	n := [3]int{0, 0, 1}
	for i, v := range c.args {
		if !isWhole(v) || i == len(n) {
			panic(faultf("range: argument %d is %s, want one to three ints", i+1, kindOf(v)))
		}
		n[i] = toInt(v)
	}
	if len(c.args) == 1 {
		n[0], n[1] = 0, n[0]
	}
	if len(c.args) == 0 || n[2] == 0 {
		panic(faultf("range: want one to three ints, the third not 0"))
	}
	out := []any{}
	for i := n[0]; n[2] > 0 && i < n[1] || n[2] < 0 && i > n[1]; {
		c.step(passSteps)
		out = append(out, i)
		next := i + n[2]
		if (next > i) != (n[2] > 0) {
			break // past the largest or smallest int
		}
		i = next
	}
	name := fmt.Sprintf("range(%d, %d)", n[0], n[1])
	if n[2] != 1 {
		name = fmt.Sprintf("range(%d, %d, %d)", n[0], n[1], n[2])
	}
	return &view{name, out}
}

// makeNamespace makes the one kind of value that a template may change.
func makeNamespace(c *call) any {
	out := namespace{}
	for _, e := range makeDict(c).(Dict) {
		out.set(c.str(e.Key), e.Value)
	}
	return out
}

// set refuses what transformers refuses.
func (n namespace) set(name string, v any) {
	if strings.HasPrefix(name, "_") {
		panic(faultf("namespace: found the name %q, want one that does not begin with _", name))
	}
	n[name] = v
}

// makeDict is Python's dict: of a dictionary or of pairs, and of named arguments.
func makeDict(c *call) any {
	out := Dict{}
	switch of := c.arg(0, "", Dict{}).(type) {
	case Dict:
		out = append(out, of...)
	default:
		for _, v := range c.iterate(of) {
			pair := c.iterate(v)
			if len(pair) != 2 {
				panic(faultf("dict: found %d values, want pairs", len(pair)))
			}
			out = c.with(out, pair[0], pair[1])
		}
	}
	if len(c.args) > 1 {
		panic(faultf("dict: found %d arguments, want one", len(c.args)))
	}
	for _, e := range c.kwargs {
		out = c.with(out, e.Key, e.Value)
	}
	return out
}

// names lists the keys of m, for messages.
func names[V any](m map[string]V) string { return strings.Join(slices.Sorted(maps.Keys(m)), ", ") }
