package synth

import (
	"embed"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/internal/run"
)

//go:embed prompts/*.tmpl
var promptFiles embed.FS

// The templates.
const (
	vignettesPrompt = "vignettes.tmpl" // filled with an order
	itemPrompt      = "item.tmpl"      // filled with an outline
	repairPrompt    = "repair.tmpl"    // filled with a complaint
)

// order asks for vignettes.
type order struct {
	Scenario, Domain, Principle string
	Meaning                     string // of the principle
	Count, Number, Total        int    // vignettes; this order and all
}

// outline asks for an item.
type outline struct {
	ci.Seed
	Meaning string // of the principle
}

// complaint asks for a better reply.
type complaint struct{ Faults []string }

// meanings say what the principles are.
var meanings = map[string]string{
	ci.Principles[0]: "Information that has nothing to do with the purpose of the message is not passed on.",
	ci.Principles[1]: "The message holds as much as its purpose needs and no more, even about the same topic.",
	ci.Principles[2]: "The information is about a third person, and is passed on only where that person has agreed.",
}

// prompts are the templates by name, with their texts.
type prompts struct {
	*template.Template
	texts map[string]string
}

// loadPrompts reads the built-in templates, and in their place those that a folder has under the same names.
func loadPrompts(dir string) (*prompts, error) {
	p := &prompts{template.New("").Option("missingkey=error"), map[string]string{}}
	for _, name := range []string{vignettesPrompt, itemPrompt, repairPrompt} {
		text, err := promptFiles.ReadFile(path.Join("prompts", name))
		if err != nil {
			return nil, err
		}
		p.texts[name] = string(text)
	}
	if err := p.replace(dir); err != nil {
		return nil, err
	}
	for name, text := range p.texts {
		if _, err := p.New(name).Parse(text); err != nil {
			return nil, fmt.Errorf("prompts %s: %w", dir, err)
		}
	}
	return p, p.try(dir)
}

func (p *prompts) replace(dir string) error {
	if dir == "" {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("prompts %s: %w", dir, run.Cause(err))
	}
	for _, e := range entries {
		if _, ok := p.texts[e.Name()]; !ok {
			return fmt.Errorf("prompts %s: %s: want files named %s, %s and %s, any of them", dir, e.Name(),
				vignettesPrompt, itemPrompt, repairPrompt)
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return fmt.Errorf("prompts %s: %w", dir, run.Cause(err))
		}
		p.texts[e.Name()] = string(text)
	}
	return nil
}

// try fills every template, and wants two seeds to give two prompts.
func (p *prompts) try(dir string) error {
	mark := ci.Seed{Domain: "\x00"}
	for name, with := range map[string][]any{
		vignettesPrompt: {order{}, order{Domain: mark.Domain}},
		itemPrompt:      {outline{}, outline{Seed: mark}},
		repairPrompt:    {complaint{}, complaint{[]string{mark.Domain}}},
	} {
		first, err := p.fill(name, with[0])
		if err != nil {
			return fmt.Errorf("prompts %s: %w", dir, err)
		}
		if second, err := p.fill(name, with[1]); err != nil || first == second {
			return fmt.Errorf("prompts %s: %s names no field of what it asks for (%v)", dir, name, err)
		}
	}
	return nil
}

// fill writes a prompt. An error is one line.
func (p *prompts) fill(name string, with any) (string, error) {
	var s strings.Builder
	if err := p.ExecuteTemplate(&s, name, with); err != nil {
		return "", err
	}
	return strings.TrimSpace(s.String()), nil
}

// text are the templates of some names, for a hash.
func (p *prompts) text(names ...string) (all []string) {
	for _, name := range names {
		all = append(all, p.texts[name])
	}
	return all
}

// write puts the templates into the run folder.
func (p *prompts) write(f *run.Folder) error {
	if err := os.MkdirAll(f.Path(promptsName), 0o777); err != nil {
		return fmt.Errorf("%s: %w", f.Path(promptsName), run.Cause(err))
	}
	for _, name := range slices.Sorted(maps.Keys(p.texts)) {
		file := filepath.Join(promptsName, name)
		if err := errors.Join(f.Own(file), f.WriteFile(file, []byte(p.texts[name]))); err != nil {
			return err
		}
	}
	return nil
}
