package arena

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/data/internal/rows"
	"github.com/posttrain/posttrain/internal/config"
)

// Prompts say how the judge is asked, and how its verdict is found.
type Prompts struct {
	System   string // "": the file has none
	Template string // with fields such as {QUESTION}
	Patterns []*regexp.Regexp
	// Last: of several verdicts the last one counts, as in the benchmark's newer tools. Otherwise verdicts that
	// contradict each other are no verdict.
	Last bool
}

// ReadPrompts reads the benchmark's configuration of a judge, a .yaml file with prompt_template, a text or a list with
// one, and system_prompt and regex_pattern, or regex_patterns.
func ReadPrompts(path string) (*Prompts, error) {
	text, err := os.ReadFile(path)
	var p *Prompts
	if err == nil {
		p, err = ParsePrompts(text)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, rows.CauseOf(err))
	}
	return p, nil
}

// ParsePrompts is ReadPrompts of a text.
func ParsePrompts(text []byte) (*Prompts, error) {
	file, err := config.Texts(text)
	if err != nil {
		return nil, err
	}
	template, patterns := file["prompt_template"], file["regex_patterns"]
	if len(template) != 1 || template[0] == "" {
		return nil, errors.New("prompt_template is missing or no text: want a text, or a list with one")
	}
	p := &Prompts{Template: template[0], Last: true}
	if system := file["system_prompt"]; len(system) == 1 {
		p.System = system[0]
	}
	if pattern := file["regex_pattern"]; pattern != nil {
		patterns, p.Last = pattern, false
	}
	for _, pattern := range patterns {
		r, err := regexp.Compile(pattern)
		if err != nil || r.NumSubexp() != 1 {
			return nil, fmt.Errorf("the pattern of a verdict is %q: want a regular expression with one group", pattern)
		}
		p.Patterns = append(p.Patterns, r)
	}
	if p.Patterns == nil {
		return nil, errors.New("regex_pattern is missing: want a pattern of a verdict, or a list regex_patterns")
	}
	return p, nil
}

// Verdict finds the verdict, one of Verdicts, in what the judge has said; "": it has none. again says that the judge
// may come to one if it is asked to continue.
func (p *Prompts) Verdict(said string) (verdict string, again bool) {
	if p.Last { // small letters are for the newer tools alone
		said = strings.ToUpper(said)
	}
	for _, pattern := range p.Patterns {
		var all []string
		for _, found := range pattern.FindAllStringSubmatch(said, -1) {
			if found[1] != "" {
				all = append(all, found[1])
			}
		}
		if len(all) == 0 {
			continue
		}
		if !p.Last && slices.ContainsFunc(all, func(v string) bool { return v != all[0] }) {
			return "", false
		}
		verdict, _ = verdictOf(all[len(all)-1])
		return verdict, false
	}
	return "", true
}
