package ci

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"
	"unicode/utf8"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/config"
)

// Form is the form of prompts.
type Form struct {
	Prompt   string `yaml:"prompt" want:"compact|plain|cot|cot-short|@file" flag:"prompt" help:"form of the prompts: cot (CI-CoT: think about every piece of information), cot-short, plain, compact (the embedded model's), or a template's file (docs/data.md)"`
	Template string `yaml:"template,omitempty" want:"@text" help:"the text of the template's file, which a run keeps"`
	Prefill  bool   `yaml:"prefill" help:"answers begin with <think>; default: for the forms cot, cot-short and a file"`
}

// Writer writes the prompt of an item; order draws the order of its attributes.
type Writer func(item Item, order uint64) ([]data.Message, error)

// IsFile says that the form is a template of one's own.
func (f *Form) IsFile() bool { return !slices.Contains(PromptKinds, f.Prompt) }

// Thinks says that the form asks for thoughts as CI-RL does, so that answers begin with <think> unless the user says
// otherwise.
func (f *Form) Thinks() bool { return f.Prompt != PromptCompact && f.Prompt != PromptPlain }

// Load reads the template's file, unless its text is there, and checks the form.
func (f *Form) Load() error {
	switch {
	case !f.IsFile() && f.Template != "":
		return fmt.Errorf("a template is given, and prompt %s has its own words: remove one of the two", f.Prompt)
	case f.IsFile() && f.Template == "":
		text, err := config.Open(f.Prompt)
		if err != nil {
			return fmt.Errorf("%s: %w: want %s", f.Prompt, errors.Unwrap(err), accepted)
		}
		f.Template = string(text)
	}
	_, err := f.Writer()
	return err
}

// Writer is the form ready for use. It refuses a template that names what no item has, or leaves out what every prompt
// needs.
func (f *Form) Writer() (Writer, error) {
	if kind := f.Prompt; !f.IsFile() {
		return func(item Item, order uint64) ([]data.Message, error) { return Prompt(item, kind, order), nil }, nil
	}
	t, err := parseTemplate(f.Prompt, f.Template)
	if err != nil {
		return nil, err
	}
	write := func(item Item, order uint64) ([]data.Message, error) { return t.fill(item.fields(order, f.Prefill)) }
	return write, t.try()
}

// fields are what a template is filled in with.
type fields struct {
	Scenario, Domain, Intention, Sender, Recipient, Subject, Principle string
	Task                                                               string
	Attributes                                                         []listed // with an annotation, in a drawn order
	Annotated                                                          []listed // as released: twice if on both sides
	Prefill                                                            bool     // answers begin inside the think block
}

// listed is an attribute as a prompt lists it.
type listed struct{ Key, Text string }

func (c *Item) fields(order uint64, prefill bool) fields {
	f := fields{c.Seed.Scenario, c.Seed.Domain, c.Seed.UserIntention, c.Seed.Sender, c.Seed.Recipient,
		c.Seed.DataSubject, c.Seed.TransmissionPrinciple, c.DatasetItem.UserTask, nil, nil, prefill}
	for _, a := range c.promptOrder(order) {
		f.Attributes = append(f.Attributes, listed{a.Key, a.Text})
	}
	all := c.Attributes()
	for _, a := range slices.Clone(all) {
		if len(a.Required) > 0 && len(a.Restricted) > 0 {
			all = append(all, a)
		}
	}
	shuffle(all, order)
	for _, a := range all {
		f.Annotated = append(f.Annotated, listed{a.Key, a.Text})
	}
	return f
}

// maxTemplate bounds a template: it becomes a part of the run's config.
const maxTemplate = 64 << 10

// systemMessage is the name of the part of a template that is a message of the system.
const systemMessage = "system"

// promptTemplate is a template of one's own.
type promptTemplate struct{ *template.Template }

func parseTemplate(name, text string) (promptTemplate, error) {
	switch {
	case len(text) > maxTemplate:
		return promptTemplate{}, fmt.Errorf("%s: longer than %d KiB: want a template", name, maxTemplate>>10)
	case !utf8.ValidString(text):
		return promptTemplate{}, fmt.Errorf("%s: not UTF-8: want a template", name)
	}
	t, err := template.New(name).Parse(text)
	if err != nil {
		return promptTemplate{}, fmt.Errorf("%s", strings.TrimPrefix(err.Error(), "template: "))
	}
	w := walker{root: t}
	for _, part := range []string{name, systemMessage} {
		w.template(part, reflect.TypeFor[fields]())
	}
	return promptTemplate{t}, w.err
}

// fill writes the messages.
func (t promptTemplate) fill(f fields) (messages []data.Message, err error) {
	for _, part := range []struct{ name, role string }{{systemMessage, "system"}, {t.Name(), "user"}} {
		if t.Lookup(part.name) == nil {
			continue
		}
		var b strings.Builder
		if err := t.ExecuteTemplate(&b, part.name, f); err != nil {
			return nil, fmt.Errorf("%s", strings.TrimPrefix(err.Error(), "template: "))
		}
		messages = append(messages, data.Message{Role: part.role, Content: b.String()})
	}
	return messages, nil
}

// try fills in a sample and wants to see what no prompt can do without.
func (t promptTemplate) try() error {
	list := []listed{{"«key»", "«text»"}}
	messages, err := t.fill(fields{"«scenario»", "«domain»", "«intention»", "«sender»", "«recipient»", "«subject»",
		"«principle»", "«task»", list, list, true})
	if err != nil {
		return err
	}
	text := ""
	for _, m := range messages {
		text += m.Content
	}
	for _, need := range []struct{ mark, what string }{
		{"«task»", "the task: want {{.Task}} in it"},
		{"«text»", "the information: want {{range .Attributes}}{{.Key}}: {{.Text}}{{end}} in it"},
	} {
		if !strings.Contains(text, need.mark) {
			return fmt.Errorf("%s: the prompt lacks %s", t.Name(), need.what)
		}
	}
	return nil
}

// walker looks through a template for fields that are not there. Go would find them while it fills one in, and only
// where it gets to. A type is nil where it does not follow from the template's text.
type walker struct {
	root  *template.Template
	names map[string]reflect.Type // of variables
	depth int                     // of templates that call each other
	err   error                   // the first fault
}

const maxCalls = 32

// template looks through a part, which is given an argument of a type.
func (w *walker) template(name string, arg reflect.Type) {
	part := w.root.Lookup(name)
	if part == nil || part.Tree == nil || w.depth == maxCalls {
		return
	}
	inner := walker{w.root, map[string]reflect.Type{"$": arg}, w.depth + 1, w.err}
	inner.list(part.Root, arg)
	w.err = inner.err
}

func (w *walker) list(l *parse.ListNode, dot reflect.Type) {
	if l == nil {
		return
	}
	for _, n := range l.Nodes {
		w.node(n, dot)
	}
}

func (w *walker) node(n parse.Node, dot reflect.Type) {
	if action, ok := n.(*parse.ActionNode); ok {
		w.pipe(action.Pipe, dot)
		return
	}
	defer func(outside map[string]reflect.Type) { w.names = outside }(w.names)
	w.names = maps.Clone(w.names) // variables of a block end with it
	switch n := n.(type) {
	case *parse.IfNode:
		w.pipe(n.Pipe, dot)
		w.list(n.List, dot)
		w.list(n.ElseList, dot)
	case *parse.WithNode:
		w.list(n.List, w.pipe(n.Pipe, dot))
		w.list(n.ElseList, dot)
	case *parse.RangeNode:
		w.list(n.List, w.each(n.Pipe, w.pipe(n.Pipe, dot)))
		w.list(n.ElseList, dot)
	case *parse.TemplateNode:
		w.template(n.Name, w.pipe(n.Pipe, dot))
	}
}

// each is the type of an element of what a range walks over, and gives it to the range's variables.
func (w *walker) each(p *parse.PipeNode, list reflect.Type) (element reflect.Type) {
	if list != nil && list.Kind() == reflect.Slice {
		element = list.Elem()
	}
	for i, v := range p.Decl {
		w.names[v.Ident[0]] = element
		if len(p.Decl) == 2 && i == 0 {
			w.names[v.Ident[0]] = reflect.TypeFor[int]()
		}
	}
	return element
}

// pipe is the type of a pipeline's value, where that is a field or a variable.
func (w *walker) pipe(p *parse.PipeNode, dot reflect.Type) (result reflect.Type) {
	if p == nil {
		return nil
	}
	for _, c := range p.Cmds {
		for _, arg := range c.Args {
			result = w.value(arg, dot)
		}
		if len(c.Args) > 1 {
			result = nil // a call
		}
	}
	if len(p.Cmds) > 1 {
		result = nil
	}
	for _, v := range p.Decl {
		if w.names[v.Ident[0]] = result; p.IsAssign {
			w.names[v.Ident[0]] = nil // which of its values it has is not known
		}
	}
	return result
}

func (w *walker) value(n parse.Node, dot reflect.Type) reflect.Type {
	switch n := n.(type) {
	case *parse.DotNode:
		return dot
	case *parse.FieldNode:
		return w.field(n, n.Ident, dot)
	case *parse.VariableNode:
		return w.field(n, n.Ident[1:], w.names[n.Ident[0]])
	case *parse.ChainNode:
		return w.field(n, n.Field, w.value(n.Node, dot))
	case *parse.PipeNode:
		return w.pipe(n, dot)
	}
	return nil
}

// field follows a chain of names such as .Task.
func (w *walker) field(n parse.Node, chain []string, from reflect.Type) reflect.Type {
	for _, name := range chain {
		if from == nil {
			return nil
		}
		var f reflect.StructField
		ok := false
		if from.Kind() == reflect.Struct {
			f, ok = from.FieldByName(name)
		}
		if !ok {
			w.fault(n, name, from)
			return nil
		}
		from = f.Type
	}
	return from
}

// fault says which field is not there, and which are.
func (w *walker) fault(n parse.Node, name string, in reflect.Type) {
	if w.err != nil {
		return
	}
	what := map[reflect.Type]string{reflect.TypeFor[fields](): "an item", reflect.TypeFor[listed](): "an attribute"}[in]
	if what == "" {
		what = "this value"
	}
	place, _ := w.root.ErrorContext(n)
	if at := strings.LastIndexByte(place, ':'); at > 0 {
		place = place[:at] // without the column
	}
	w.err = fmt.Errorf("%s: %s has no field .%s: want %s of an item, or %s of one of its .Attributes", place, what, name,
		fieldNames(reflect.TypeFor[fields]()), fieldNames(reflect.TypeFor[listed]()))
}

func fieldNames(t reflect.Type) string {
	var names []string
	for _, f := range reflect.VisibleFields(t) {
		names = append(names, "."+f.Name)
	}
	return strings.Join(names, ", ")
}
