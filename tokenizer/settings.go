package tokenizer

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
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
		t.setTemplates(map[string]string{"default": o.Template})
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

// setTemplates replaces the templates, and their files.
func (t *Tokenizer) setTemplates(all map[string]string) {
	t.chat.templates, t.chat.compiled = all, map[string]compiled{}
	t.files = slices.DeleteFunc(t.files, func(f file) bool {
		return f.name == templateFile || path.Dir(f.name) == templateFolder
	})
	for _, name := range slices.Sorted(maps.Keys(all)) {
		to := templateFile
		if name != "default" {
			to = path.Join(templateFolder, name+".jinja")
		}
		t.files = append(t.files, file{to, []byte(all[name])})
	}
}

// TakeTemplates replaces the chat templates by the templates of another folder, such as an adapter's, if it has any and
// they differ.
func (t *Tokenizer) TakeTemplates(fsys fs.FS, name string) error {
	other := &Tokenizer{name: name}
	contents, err := other.readFiles(fsys)
	if err != nil {
		return err
	}
	config, err := readOrdered(contents["tokenizer_config.json"])
	if err != nil {
		return other.fault("tokenizer_config.json", err)
	}
	if err := other.readTemplates(config, contents); err != nil {
		return err
	}
	all := other.chat.templates
	for name := range all {
		if !filepath.IsLocal(name) || strings.ContainsAny(name, `/\`) { // it becomes the name of a file
			return other.fault("tokenizer_config.json", fmt.Errorf("chat_template %q: want a name without a path", name))
		}
	}
	if len(all) > 0 && !maps.Equal(all, t.chat.templates) {
		t.setTemplates(all)
	}
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
