package jinja

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nikolalohinski/gonja/v2/builtins/control_structures"
	"github.com/nikolalohinski/gonja/v2/config"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/loaders"
	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/parser"
)

// A Template is compiled once and may be rendered by many goroutines at the same time.
type Template struct{ compiled *exec.Template }

// Bounds on what a template may ask for; chat templates stay far below them.
const (
	maxSource = 1 << 20 // bytes of template
	maxSteps  = 1 << 18 // passes through loop bodies and items of ranges
	maxOutput = 1 << 28 // bytes rendered
	maxMacros = 100     // calls within calls
)

// Compile reads a template. Its errors name the line.
func Compile(source string) (t *Template, err error) {
	if len(source) > maxSource {
		return nil, fmt.Errorf("template of %d bytes: want at most %d", len(source), maxSource)
	}
	defer recovered(&err)
	text, err := translate(source)
	if err != nil {
		return nil, err
	}
	loader, err := loaders.NewMemoryLoader(map[string]string{"/template": text})
	if err != nil {
		return nil, err
	}
	cfg := config.New()
	cfg.KeepTrailingNewline = true
	compiled, err := exec.NewTemplate("/template", cfg, loader, environment())
	if err != nil {
		return nil, fmt.Errorf("template does not compile: %w", root(err))
	}
	return &Template{compiled}, nil
}

// recovered turns a panic of gonja into an error.
func recovered(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("template engine: %v", p)
	}
}

// root finds the first cause under gonja's layers of wrapping.
func root(err error) error {
	for {
		if v, ok := err.(*exec.Value); ok {
			err, _ = v.Interface().(error)
			continue
		}
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}

// Render runs the template with vars, which go through Of. now is what strftime_now prints.
func (t *Template) Render(vars map[string]any, now time.Time) (text string, err error) {
	defer recovered(&err)
	run := &state{now: now}
	values := map[string]any{
		"_state": run, "_none": None,
		"raise_exception": run.raiseException, "strftime_now": run.strftimeNow, "range": run.rangeFunction,
		"namespace": run.namespace, "dict": run.dict,
	}
	for name, v := range vars {
		value, err := Of(v)
		if err != nil {
			return "", fmt.Errorf("template variable %s: %w", name, err)
		}
		values[nameOf(name)] = value
	}
	if err := t.compiled.Execute(&run.out, exec.NewContext(values)); err != nil {
		return "", run.cause(err)
	}
	return run.out.String(), nil
}

// An Exception is what a template raised with raise_exception.
type Exception struct{ Message string }

func (e *Exception) Error() string { return "the chat template refuses: " + e.Message }

// state is what one rendering keeps.
type state struct {
	now    time.Time
	out    limitedBuilder
	fault  error // the first that one of our functions returned
	steps  int
	macros int // calls that are going on
}

type limitedBuilder struct{ strings.Builder }

func (b *limitedBuilder) Write(p []byte) (int, error) { return b.WriteString(string(p)) }

func (b *limitedBuilder) WriteString(s string) (int, error) {
	if b.Len()+len(s) > maxOutput {
		return 0, fmt.Errorf("template output of more than %d bytes", maxOutput)
	}
	return b.Builder.WriteString(s)
}

func (s *state) cause(err error) error {
	if s.fault != nil {
		return s.fault
	}
	return root(err)
}

// fail remembers the first fault, because gonja keeps of an error little but its text.
func (s *state) fail(err error) *exec.Value {
	if s.fault == nil {
		s.fault = err
	}
	return exec.AsValue(err)
}

func (s *state) step(n int) error {
	if s.steps += n; s.steps > maxSteps {
		return fmt.Errorf("template loops more than %d times", maxSteps)
	}
	return nil
}

func stateOf(ctx *exec.Context) *state {
	v, _ := ctx.Get("_state")
	return v.(*state)
}

func callOf(self any, params *exec.VarArgs) *call {
	c := &call{self: self, kwargs: map[string]any{}}
	for _, a := range params.Args {
		c.args = append(c.args, plain(a))
	}
	for k, a := range params.KwArgs {
		c.kwargs[k] = plain(a)
	}
	return c
}

func (s *state) raiseException(params *exec.VarArgs) *exec.Value {
	return s.fail(&Exception{str(callOf(nil, params).arg(0, "message", ""))})
}

func (s *state) strftimeNow(params *exec.VarArgs) *exec.Value {
	return exec.AsValue(strftime(s.now, str(callOf(nil, params).arg(0, "format", ""))))
}

func (s *state) rangeFunction(params *exec.VarArgs) *exec.Value {
	var n [3]int
	args := callOf(nil, params).args
	for i := range args {
		whole, ok := args[i].(int)
		if !ok || i == len(n) {
			return s.fail(fmt.Errorf("range: argument %d is %s, want one to three ints", i+1, kindOf(args[i])))
		}
		n[i] = whole
	}
	switch len(args) {
	case 1:
		n = [3]int{0, n[0], 1}
	case 2:
		n[2] = 1
	}
	if n[2] == 0 {
		return s.fail(fmt.Errorf("range: want one to three ints, the third not 0"))
	}
	out := []any{}
	for i := n[0]; n[2] > 0 && i < n[1] || n[2] < 0 && i > n[1]; i += n[2] {
		if err := s.step(1); err != nil {
			return s.fail(err)
		}
		out = append(out, i)
	}
	return exec.AsValue(out)
}

// namespace makes the one value that a template may change.
func (s *state) namespace(params *exec.VarArgs) *exec.Value {
	out := map[string]any{}
	c := callOf(nil, params)
	if d, ok := c.arg(0, "", nil).(Dict); ok {
		for _, e := range d {
			out[str(e.Key)] = e.Value
		}
	}
	for k, v := range c.kwargs {
		out[k] = v
	}
	return exec.AsValue(out)
}

func (s *state) dict(params *exec.VarArgs) *exec.Value {
	c := callOf(nil, params)
	out := Dict{}
	if d, ok := c.arg(0, "", nil).(Dict); ok {
		out = append(out, d...)
	}
	sorted, err := Of(c.kwargs)
	if err != nil {
		return s.fail(err)
	}
	for _, e := range sorted.(Dict) {
		out = out.with(e.Key, e.Value)
	}
	return exec.AsValue(out)
}

// environment gives gonja nothing but our filters and the statements that translate writes: no file is ever read.
var environment = sync.OnceValue(func() *exec.Environment {
	return &exec.Environment{
		Context:           exec.EmptyContext(),
		Filters:           exec.NewFilterSet(gonjaFilters()),
		Tests:             exec.NewTestSet(map[string]exec.TestFunction{}),
		ControlStructures: exec.NewControlStructureSet(gonjaStatements()),
		Methods:           exec.Methods{},
	}
})

func gonjaFilters() map[string]exec.FilterFunction {
	out := map[string]exec.FilterFunction{}
	for name, f := range filters {
		out[name] = func(e *exec.Evaluator, in *exec.Value, params *exec.VarArgs) *exec.Value {
			var v any
			err := errorOf(in)
			if err == nil {
				v, err = f(callOf(plain(in), params))
			}
			if err != nil {
				return stateOf(e.Environment.Context).fail(err)
			}
			return exec.AsValue(v)
		}
	}
	return out
}

// errorOf is the error that gonja hands on as a value, without its wrapping.
func errorOf(v *exec.Value) error {
	if v.IsError() {
		return root(v)
	}
	return nil
}

func gonjaStatements() map[string]parser.ControlStructureParser {
	out := map[string]parser.ControlStructureParser{}
	for _, name := range []string{"if", "set", "break", "continue"} {
		out[name], _ = controlStructures.All.Get(name)
	}
	out["for"], out["macro"] = countedFor, countedMacro
	return out
}

// countedFor is gonja's for with a count of all passes, so that no template runs for ever.
func countedFor(p, args *parser.Parser) (nodes.ControlStructure, error) {
	parse, _ := controlStructures.All.Get("for")
	cs, err := parse(p, args)
	if loop, ok := cs.(*controlStructures.ForControlStructure); ok && err == nil {
		tick := &nodes.ControlStructureBlock{Location: loop.Position(), Name: "tick", ControlStructure: tick{loop}}
		loop.BodyWrapper.Nodes = append([]nodes.Node{tick}, loop.BodyWrapper.Nodes...)
	}
	return cs, err
}

type tick struct{ nodes.ControlStructure }

func (tick) Execute(r *exec.Renderer, _ *nodes.ControlStructureBlock) error {
	return stateOf(r.Environment.Context).step(1)
}

// countedMacro is gonja's macro with a bound on calls within calls: a stack overflow could not be recovered.
func countedMacro(p, args *parser.Parser) (nodes.ControlStructure, error) {
	parse, _ := controlStructures.All.Get("macro")
	cs, err := parse(p, args)
	if macro, ok := cs.(*controlStructures.MacroControlStructure); ok && err == nil {
		return &boundedMacro{macro}, nil
	}
	return cs, err
}

type boundedMacro struct {
	*controlStructures.MacroControlStructure
}

func (m *boundedMacro) Execute(r *exec.Renderer, tag *nodes.ControlStructureBlock) error {
	f, err := exec.MacroNodeToFunc(m.Macro, r)
	if err != nil {
		return err
	}
	run := stateOf(r.Environment.Context)
	r.Environment.Context.Set(m.Name, exec.Macro(func(params *exec.VarArgs) *exec.Value {
		if run.macros >= maxMacros {
			return run.fail(fmt.Errorf("macro %s: more than %d calls within calls", m.Name, maxMacros))
		}
		run.macros++
		defer func() { run.macros-- }()
		return f(params)
	}))
	return nil
}
