package tokenizer

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/posttrain/posttrain/tokenizer/jinja"
)

// A Message is one turn of a conversation.
type Message struct {
	Role, Content string
	// Whole is the message as a JSON object with further keys, such as tool_calls; the template gets it in the place of
	// Role and Content. Empty: the message has these alone.
	Whole string
}

// RenderOptions are what a chat template gets besides the messages and the named special tokens.
type RenderOptions struct {
	AddGenerationPrompt bool // end with the beginning of the assistant's turn
	// Extra has more variables, such as tools or documents. They replace variables of the same name: use "messages" for
	// messages with more fields than role and content. Values are nil, booleans, strings, numbers, slices, maps,
	// jinja.Dict, or json.RawMessage, whose objects keep their order.
	Extra map[string]any
	Now   time.Time // the time that strftime_now prints; zero: the time of the call
}

// chat holds the templates of a folder.
type chat struct {
	templates map[string]string // by name; if there is only one, it is called default
	fixed     ChatOptions
	mu        sync.Mutex
	compiled  map[string]compiled
}

type compiled struct {
	template *jinja.Template
	err      error
}

// read takes the template from chat_template.jinja, or if there is no such file from tokenizer_config.json.
func (c *chat) read(config configuration, jinjaFile []byte) error {
	c.templates, c.compiled = map[string]string{}, map[string]compiled{}
	if jinjaFile != nil {
		c.templates["default"] = string(jinjaFile)
		return nil
	}
	raw := config.values["chat_template"]
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	if raw[0] != '[' {
		var text string
		err := unmarshal(raw, "chat_template", &text)
		c.templates["default"] = text
		return err
	}
	var list []struct{ Name, Template string }
	if err := unmarshal(raw, "chat_template", &list); err != nil {
		return err
	}
	for i, t := range list {
		if t.Name == "" {
			return fmt.Errorf("chat_template[%d].name: missing", i)
		}
		c.templates[t.Name] = t.Template
	}
	return nil
}

// HasTemplate reports whether the folder has a chat template for Render.
func (t *Tokenizer) HasTemplate() bool { return len(t.chat.templates) > 0 }

// Render writes a conversation as text with the folder's chat template. The text has its special tokens: encode it
// without adding more. If the template refuses the conversation, the error is a *jinja.Exception.
func (t *Tokenizer) Render(msgs []Message, o RenderOptions) (string, error) {
	text, _, err := t.RenderMarked(msgs, o)
	return text, err
}

// Marks says that the chat template marks with {% generation %} what a model says.
func (t *Tokenizer) Marks() bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(t.chat.templates)), generation.MatchString)
}

var generation = regexp.MustCompile(`\{%[-+]?\s*generation\s*[-+]?%\}`)

// RenderMarked is Render with the stretches of the text that the template marks with {% generation %}.
func (t *Tokenizer) RenderMarked(msgs []Message, o RenderOptions) (text string, marked []jinja.Stretch, err error) {
	name, err := t.templateName(o)
	if err != nil {
		return "", nil, err
	}
	list, err := messagesOf(msgs)
	if err == nil {
		text, marked, err = t.write(name, list, o)
	}
	if given := parsedCalls(list); given != nil && (err != nil || quotes(text, list)) {
		if text2, marked2, err2 := t.write(name, given, o); err2 == nil {
			text, marked, err = text2, marked2, nil
		}
	}
	if given := withoutEmpty(list); given != nil && err != nil {
		text, marked, err = t.write(name, given, o)
	}
	var refused *jinja.Exception
	switch {
	case errors.As(err, &refused):
		return "", nil, fmt.Errorf("%s: %w", t.name, err)
	case err != nil:
		return "", nil, fmt.Errorf("%s: chat template: %w", t.name, err)
	}
	return text, marked, nil
}

// write renders messages that are as the template of a name gets them.
func (t *Tokenizer) write(name string, list []any, o RenderOptions) (string, []jinja.Stretch, error) {
	template, err := t.chat.compile(name)
	if err != nil {
		return "", nil, err
	}
	now := o.Now
	if now.IsZero() {
		now = t.chat.fixed.Now
	}
	if now.IsZero() {
		now = time.Now()
	}
	return template.RenderMarked(t.variables(list, o), now)
}

// templateName chooses the template: tool_use if there are tools and such a template, else default.
func (t *Tokenizer) templateName(o RenderOptions) (string, error) {
	if _, ok := t.chat.templates["tool_use"]; ok && o.Extra["tools"] != nil {
		return "tool_use", nil
	}
	if _, ok := t.chat.templates["default"]; ok {
		return "default", nil
	}
	if !t.HasTemplate() {
		const fault = "no chat template: want chat_template.jinja, or chat_template in tokenizer_config.json"
		return "", fmt.Errorf("%s: "+fault, t.name)
	}
	names := strings.Join(slices.Sorted(maps.Keys(t.chat.templates)), ", ")
	return "", fmt.Errorf("%s: tokenizer_config.json: chat_template has %s: want one called default", t.name, names)
}

// compile compiles a template at its first use, so that a broken one harms nobody who does not render.
func (c *chat) compile(name string) (*jinja.Template, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	done, ok := c.compiled[name]
	if !ok {
		done.template, done.err = jinja.Compile(c.templates[name])
		c.compiled[name] = done
	}
	return done.template, done.err
}

// variables are the variables that transformers gives a template.
func (t *Tokenizer) variables(list []any, o RenderOptions) map[string]any {
	vars := map[string]any{"tools": nil, "documents": nil}
	for name, token := range t.named {
		vars[name] = token
	}
	vars["messages"], vars["add_generation_prompt"] = list, o.AddGenerationPrompt
	maps.Copy(vars, t.chat.fixed.Variables)
	maps.Copy(vars, o.Extra)
	return vars
}
