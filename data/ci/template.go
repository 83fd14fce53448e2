package ci

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"text/template"
	"unicode/utf8"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/config"
)

// Form is the form of prompts.
type Form struct {
	Prompt   string `yaml:"prompt" want:"compact|plain|cot|released|answer|@file" flag:"prompt" help:"form of the prompts: cot (CI-CoT: think about every piece of information), released (CI-RL's own text), plain, compact (the embedded model's), answer (no thoughts), or a template's file (docs/data.md)"`
	Template string `yaml:"template,omitempty" want:"@text" help:"the text of the template's file, which a run keeps"`
	Prefill  bool   `yaml:"prefill" help:"answers begin with <think>; default: for the forms cot, released and a file"`
}

// Resolve forgets the text of a template that the file has where the command line names another form.
func (f *Form) Resolve(g *config.Given) {
	if g.FromCommandLine("prompt") && !g.FromCommandLine("template") {
		f.Template = ""
		g.Drop("template")
	}
}

// Validate reads the template that the form names, and refuses one that gives no prompts or that the run's config could
// not keep.
func (f *Form) Validate(g *config.Given) {
	if f.Prompt == "" || g.Bad("prompt") {
		return
	}
	err := f.Load()
	if err == nil {
		if err = config.CheckBounds([]byte(f.Template)); err != nil {
			err = fmt.Errorf("%s: %w", f.Prompt, err)
		}
	}
	if err != nil {
		g.Fault("prompt", "%s: %v", g.Key("prompt"), err)
	}
}

// Writer writes the prompt of an item; order draws the order of its attributes.
type Writer func(item Item, order uint64) ([]data.Message, error)

// IsFile says that the form is a template of one's own.
func (f *Form) IsFile() bool { return !slices.Contains(PromptKinds, f.Prompt) }

// Thinks says that the form asks for thoughts as CI-RL does, so that answers begin with <think> unless the user says
// otherwise.
func (f *Form) Thinks() bool {
	return f.IsFile() || f.Prompt == PromptCoT || f.Prompt == PromptReleased
}

// IsReleased says that the prompts are as in CI-RL's release, under whatever name.
func (f *Form) IsReleased() bool { return f.Prompt == PromptReleased || f.Template == releasedTemplate }

// Suits is the format of answers that the form asks for, as the reward names it, where the user names none.
func (f *Form) Suits(format string, given bool) string {
	if f.Prompt == PromptAnswer && !given {
		return "answer"
	}
	return format
}

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

// blanks are what a template is filled in with.
type blanks struct {
	Scenario, Domain, Intention, Sender, Recipient, Subject, Principle string
	Task                                                               string
	Attributes                                                         []listed // with an annotation, in a drawn order
	Annotated                                                          []listed // as released: twice if on both sides
	Prefill                                                            bool     // answers begin inside the think block
}

// listed is an attribute as a prompt lists it.
type listed struct{ Key, Text string }

func (c *Item) fields(order uint64, prefill bool) blanks {
	f := blanks{c.Seed.Scenario, c.Seed.Domain, c.Seed.UserIntention, c.Seed.Sender, c.Seed.Recipient,
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
	return promptTemplate{t}, nil
}

// fill writes the messages.
func (t promptTemplate) fill(f blanks) (messages []data.Message, err error) {
	for _, part := range []struct{ name, role string }{{systemMessage, "system"}, {t.Name(), "user"}} {
		if t.Lookup(part.name) == nil {
			continue
		}
		var b strings.Builder
		if err := t.ExecuteTemplate(&b, part.name, f); err != nil {
			return nil, explain(err)
		}
		messages = append(messages, data.Message{Role: part.role, Content: b.String()})
	}
	return messages, nil
}

// unknownField is the error of a template that names a field that is not there.
var unknownField = regexp.MustCompile(`^template: (.*?:\d+):\d+: .*can't evaluate field (\w+) in type (\S+)$`)

// explain says in which line a template is wrong, and which fields there are.
func explain(err error) error {
	found := unknownField.FindStringSubmatch(err.Error())
	if found == nil {
		return fmt.Errorf("%s", strings.TrimPrefix(err.Error(), "template: "))
	}
	what := cmp.Or(map[string]string{"ci.blanks": "an item", "ci.listed": "an attribute"}[found[3]], "this value")
	return fmt.Errorf("%s: %s has no field .%s: want %s of an item, or %s of one of its .Attributes", found[1], what,
		found[2], fieldNames(reflect.TypeFor[blanks]()), fieldNames(reflect.TypeFor[listed]()))
}

func fieldNames(t reflect.Type) string {
	var names []string
	for _, f := range reflect.VisibleFields(t) {
		names = append(names, "."+f.Name)
	}
	return strings.Join(names, ", ")
}

// try fills in an item without texts and one with all, and wants to see what no prompt can do without.
func (t promptTemplate) try() error {
	if _, err := t.fill(blanks{Attributes: []listed{{}}, Annotated: []listed{{}}}); err != nil {
		return err
	}
	list := []listed{{"«key»", "«text»"}}
	messages, err := t.fill(blanks{"«scenario»", "«domain»", "«intention»", "«sender»", "«recipient»", "«subject»",
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
