package arena

import (
	"crypto/sha256"
	_ "embed"
	"fmt"
	"strings"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/arena"
	"github.com/posttrain/posttrain/eval"
)

//go:embed judge.yaml
var judgeFile []byte

// Continue is said to a judge that has come to no verdict.
const Continue = "Continue, and end with your verdict in one of the forms asked for, such as [[A>B]]."

// Prompts are how the judge is asked.
type Prompts struct{ *arena.Prompts }

// The names of the template's fields: those of the benchmark's newer tools, and of the older ones.
var fields = [][]string{{"QUESTION", "ANSWER_A", "ANSWER_B"}, {"question_1", "answer_1", "answer_2"}}

// ReadPrompts reads the benchmark's configuration of a judge; "" names the embedded one, which is in our own words, as
// is the system message of a file that has none.
func ReadPrompts(path string) (p Prompts, err error) {
	own, err := arena.ParsePrompts(judgeFile)
	if err != nil || path == "" {
		return Prompts{own}, err
	}
	if p.Prompts, err = arena.ReadPrompts(path); err != nil {
		return p, err
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
	return p, fmt.Errorf("%s: prompt_template: %w", path, err)
}

// Hash names the prompt, and how verdicts are found.
func (p Prompts) Hash() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q%q%v%v", p.System, p.Template, p.Patterns, p.Last))
	return fmt.Sprintf("sha256 %x", sum[:8])
}

// Messages put a question and two answers to the judge.
func (p Prompts) Messages(question, a, b string) []data.Message {
	values := map[string]string{}
	for _, names := range fields {
		for i, text := range []string{question, a, b} {
			values[names[i]] = text
		}
	}
	return []data.Message{{Role: "system", Content: p.System},
		{Role: "user", Content: eval.Template(p.Template).Fill(values)}}
}
