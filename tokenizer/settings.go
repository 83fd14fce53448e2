package tokenizer

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"time"
)

// ChatOptions hold for every conversation that is rendered.
type ChatOptions struct {
	Template  string         // in the place of the folder's; "": the folder's
	Variables map[string]any // more variables of the template, as in [RenderOptions]
	Now       time.Time      // the time that strftime_now prints; zero: the time of each call
}

// SetChat sets the options. A template is checked, and copied with the tokenizer's files from then on. A variable that
// the template does not have is an error. Call it before the tokenizer is used.
func (t *Tokenizer) SetChat(o ChatOptions) error {
	if o.Template != "" {
		t.chat.templates, t.chat.compiled = map[string]string{"default": o.Template}, map[string]compiled{}
		t.files = slices.DeleteFunc(t.files, func(f file) bool {
			return f.name == templateFile || path.Dir(f.name) == templateFolder
		})
		t.files = append(t.files, file{templateFile, []byte(o.Template)})
		if _, err := t.chat.compile("default"); err != nil {
			return fmt.Errorf("%s: chat template: %w", t.name, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.Variables)) {
		if !t.mentions(name) {
			return fmt.Errorf("%s: the chat template has no variable %s", t.name, name)
		}
	}
	t.chat.fixed = o
	return nil
}

// mentions says that a template has a name, and not only as a part of a longer one.
func (t *Tokenizer) mentions(name string) bool {
	word := regexp.MustCompile(`\b` + regexp.QuoteMeta(name) + `\b`)
	for _, text := range t.chat.templates {
		if word.MatchString(text) {
			return true
		}
	}
	return false
}

// PrintsDate says that a chat template prints the date or the time.
func (t *Tokenizer) PrintsDate() bool { return t.mentions("strftime_now") }
