package local

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/internal/files"
	"github.com/posttrain/posttrain/internal/hub"
	"github.com/posttrain/posttrain/tokenizer"
)

// Chat says what the model's chat template gets beside the messages.
type Chat struct {
	Template  string   `yaml:"template,omitempty" path:"" words:"a file with a chat template (Jinja)" flag:"chat-template" help:"file with a chat template in the place of the model's own"`
	SHA256    string   `yaml:"template_sha256,omitempty" words:"the SHA-256 of the template's file" help:"of the template's file at the start of a run: a resumed run needs the same"`
	Variables []string `yaml:"variables,omitempty" want:"@text" words:"names with values, such as enable_thinking=false" flag:"chat-variables,exact" help:"variable of the chat template, such as enable_thinking=false (may be repeated)"`
	Date      string   `yaml:"date,omitempty" words:"a day such as 2026-01-31" flag:"chat-date" help:"day that the chat template prints as today, such as 2026-01-31"`
}

var variableForm = regexp.MustCompile(`^[A-Za-z_]\w*=`)

// Check names variables without a value or with a name that messages have, and a date in another form.
func (c Chat) Check() []fault.Fault {
	faults := fault.Faults(fault.Check(c))
	for _, v := range c.Variables {
		name, _, _ := strings.Cut(v, "=")
		switch {
		case !variableForm.MatchString(v):
			faults.Add("variables", v, "want a name and a value, such as enable_thinking=false")
		case name == "messages" || name == "add_generation_prompt" || name == "tools":
			faults.Add("variables", v, "the rows decide %s: want another variable of the template", name)
		}
	}
	if c.SHA256 != "" && c.Template == "" {
		faults.Add("template_sha256", c.SHA256, "chat.template, whose hash it is, is missing; remove it")
	}
	if _, err := c.now(); err != nil {
		faults.Add("date", c.Date, "want a day such as 2026-01-31")
	}
	return faults
}

const dayForm = "2006-01-02"

// now is noon of the date, zero without one.
func (c Chat) now() (time.Time, error) {
	if c.Date == "" {
		return time.Time{}, nil
	}
	day, err := time.Parse(dayForm, c.Date)
	return day.Add(12 * time.Hour), err
}

// Pin notes for a new run of a model, and of its adapter if any, what its prompts depend on besides the rows: the
// template's hash and, where the template prints the date, today. Prompts stay the same when the run is resumed another
// day.
func (c *Chat) Pin(model, adapter string) error {
	text, err := c.read()
	if err != nil {
		return err
	}
	prints := strings.Contains(text, "strftime_now")
	if text == "" {
		prints = PrintsDate(model) || adapter != "" && PrintsDate(adapter)
	} else {
		c.SHA256 = hashOf(text)
	}
	if prints && c.Date == "" {
		c.Date = time.Now().Format(dayForm)
	}
	return nil
}

func hashOf(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }

// Identify says in a line what prompts depend on: the template's hash, the variables, the date. It is "" where the
// model's own template gets nothing.
func (c Chat) Identify() (string, error) {
	text, err := c.read()
	if err != nil || text == "" && c.Variables == nil && c.Date == "" {
		return "", err
	}
	if text != "" {
		text = hashOf(text)
	}
	return fmt.Sprintf("%s %q %s", text, c.Variables, c.Date), nil
}

// maxTemplate bounds a chat template in bytes.
const maxTemplate = 1 << 20

// read is the text of the template, "" without one.
func (c Chat) read() (string, error) {
	if c.Template == "" {
		return "", nil
	}
	file, err := os.Open(c.Template)
	if err != nil {
		return "", fmt.Errorf("chat.template: %w", err)
	}
	defer file.Close()
	text, err := files.ReadAll(file, maxTemplate)
	if err == nil && strings.TrimSpace(string(text)) == "" {
		err = fmt.Errorf("the file is empty")
	}
	if err != nil {
		return "", fmt.Errorf("chat.template %s: %w", c.Template, err)
	}
	if found := hashOf(string(text)); c.SHA256 != "" && found != c.SHA256 {
		return "", fmt.Errorf("chat.template %s: it is not the run's: its SHA-256 begins with %.8s, "+
			"chat.template_sha256 with %.8s", c.Template, found, c.SHA256)
	}
	return string(text), nil
}

// Apply sets the options of the template of a model's tokenizer. Without a template of the options, the template in
// an adapter's folder, "" for none, takes the place of the model's: the adapter was trained with it.
func (c Chat) Apply(t *tokenizer.Tokenizer, adapter string) error {
	text, err := c.read()
	if err == nil && text == "" && adapter != "" {
		var folder string
		if folder, err = hub.Folder(adapter); err == nil {
			err = t.TakeTemplates(os.DirFS(folder), adapter)
		}
	}
	if err != nil {
		return err
	}
	o := tokenizer.ChatOptions{Template: text, Variables: map[string]any{}}
	if o.Now, err = c.now(); err != nil {
		return err
	}
	for _, v := range c.Variables {
		name, value, _ := strings.Cut(v, "=")
		if o.Variables[name] = any(value); json.Valid([]byte(value)) {
			o.Variables[name] = json.RawMessage(value)
		}
	}
	if err := t.SetChat(o); err != nil {
		return fmt.Errorf("chat: %w", err)
	}
	return nil
}
