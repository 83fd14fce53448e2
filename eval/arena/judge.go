package arena

import (
	"crypto/sha256"
	_ "embed"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
)

//go:embed judge.yaml
var judgeFile []byte

// reminder is said to a judge that has come to no verdict.
const reminder = "Continue, and end with your verdict in one of the forms asked for, such as [[A>B]]."

// Prompts say how the judge is asked, and how its verdict is found.
type Prompts struct {
	System   string // "": the file has none
	Template string // with fields such as {QUESTION}
	Patterns []*regexp.Regexp
	// Last: of several verdicts the last one counts, as in the benchmark's newer tools. Otherwise verdicts that
	// contradict each other are no verdict.
	Last bool
}

// The names of the template's fields in the benchmark's newer tools, and in the older ones.
var fields = [][]string{{"QUESTION", "ANSWER_A", "ANSWER_B"}, {"question_1", "answer_1", "answer_2"}}

// ReadPrompts reads the benchmark's configuration of a judge, a .yaml file with prompt_template, a text or a list with
// one, and system_prompt and regex_pattern, or regex_patterns. "" names the embedded one, which is in our own words, as
// is the system message of a file that has none.
func ReadPrompts(path string) (*Prompts, error) {
	own, err := parsePrompts("judge.yaml", judgeFile)
	if err != nil || path == "" {
		return own, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, run.Cause(err))
	}
	p, err := parsePrompts(path, text)
	if err != nil {
		return nil, err
	}
	if p.System == "" {
		p.System = own.System
	}
	for _, names := range fields {
		if err = eval.Template(p.Template).Check(names, nil); err == nil {
			return p, nil
		}
		if strings.Contains(p.Template, "{"+names[0]+"}") {
			break
		}
	}
	return nil, fmt.Errorf("%s: prompt_template: %w", path, err)
}

// texts lists a text, or the texts of a list; nil for another value.
func texts(value any) (all []string) {
	if text, ok := value.(string); ok {
		return []string{text}
	}
	list, _ := value.([]any)
	for _, item := range list {
		text, ok := item.(string)
		if !ok {
			return nil
		}
		all = append(all, text)
	}
	return all
}

func parsePrompts(path string, text []byte) (*Prompts, error) {
	var file map[string]any
	if err := config.Decode(path, text, &file, false); err != nil {
		return nil, err
	}
	template, patterns := texts(file["prompt_template"]), texts(file["regex_patterns"])
	if len(template) != 1 || template[0] == "" {
		return nil, fmt.Errorf("%s: prompt_template is missing or no text: want a text, or a list with one", path)
	}
	p := &Prompts{Template: template[0], Last: true}
	p.System, _ = file["system_prompt"].(string)
	if pattern := texts(file["regex_pattern"]); pattern != nil {
		patterns, p.Last = pattern, false
	}
	for _, pattern := range patterns {
		r, err := regexp.Compile(pattern)
		if err != nil || r.NumSubexp() != 1 {
			return nil, fmt.Errorf("%s: the pattern of a verdict is %q: want a regular expression with one group", path,
				pattern)
		}
		p.Patterns = append(p.Patterns, r)
	}
	if p.Patterns == nil {
		return nil, fmt.Errorf("%s: regex_pattern is missing: want a pattern of a verdict, or a list regex_patterns", path)
	}
	return p, nil
}

// Verdict finds the verdict, one of Verdicts, in what the judge has said; "": it has none.
func (p *Prompts) Verdict(said string) string {
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
		switch {
		case len(all) == 0:
			continue
		case !p.Last && slices.ContainsFunc(all, func(v string) bool { return v != all[0] }):
			return ""
		}
		return verdictOf(all[len(all)-1])
	}
	return ""
}

// Hash names the prompt, and how verdicts are found.
func (p *Prompts) Hash() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q%q%v%v", p.System, p.Template, p.Patterns, p.Last))
	return fmt.Sprintf("sha256 %x", sum[:8])
}

// Messages put a question and two answers to the judge.
func (p *Prompts) Messages(question, a, b string) []data.Message {
	values := map[string]string{}
	for _, names := range fields {
		for i, text := range []string{question, a, b} {
			values[names[i]] = text
		}
	}
	return []data.Message{{Role: "system", Content: p.System},
		{Role: "user", Content: eval.Template(p.Template).Fill(values)}}
}
