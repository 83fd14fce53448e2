package mtbench

import (
	"crypto/sha256"
	"embed"
	"fmt"
	"io/fs"
	"slices"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/eval"
)

// referenced are the categories that are judged with reference answers, as in the benchmark.
var referenced = []string{"math", "reasoning", "coding"}

// NeedsReference says whether answers to a question of a category are judged with a reference answer.
func NeedsReference(category string) bool { return slices.Contains(referenced, category) }

//go:embed prompts.jsonl
var promptFile embed.FS

// Prompts are the judge's templates for single answers.
type Prompts struct{ all map[string]Prompt }

var promptNames = []string{"single-v1", "single-math-v1", "single-v1-multi-turn", "single-math-v1-multi-turn"}

// The fields of the templates by name.
var promptFields = map[string][]string{
	"single-v1":                 {"question", "answer"},
	"single-math-v1":            {"question", "answer", "ref_answer_1"},
	"single-v1-multi-turn":      {"question_1", "answer_1", "question_2", "answer_2"},
	"single-math-v1-multi-turn": {"question_1", "answer_1", "question_2", "answer_2", "ref_answer_1", "ref_answer_2"},
}

// PromptName names the template for a turn, from 1.
func PromptName(category string, turn int) string {
	name := "single-v1"
	if NeedsReference(category) {
		name = "single-math-v1"
	}
	if turn == 2 {
		name += "-multi-turn"
	}
	return name
}

// ReadPrompts reads the templates of a file such as the benchmark's judge_prompts.jsonl; "" names the embedded ones,
// which are in our own words.
func ReadPrompts(path string) (p *Prompts, err error) {
	p = &Prompts{}
	files := fs.FS(nil)
	if path == "" {
		files, path = promptFile, "prompts.jsonl"
	}
	if p.all, err = readTemplates(files, path); err != nil {
		return nil, err
	}
	for _, name := range promptNames {
		found, ok := p.all[name]
		if !ok {
			return nil, fmt.Errorf("%s: it has no prompt %s: want it, of type single; is the file cut short?", path,
				name)
		}
		if found.Format != "[[rating]]" {
			return nil, fmt.Errorf("%s: output_format of %s is %q: want [[rating]]", found.Source, name, found.Format)
		}
		if err := eval.Template(found.Template).Check(promptFields[name], nil); err != nil {
			return nil, fmt.Errorf("%s: prompt_template of %s: %w", found.Source, name, err)
		}
	}
	return p, nil
}

// Hash names the templates.
func (p *Prompts) Hash() string {
	sum := sha256.New()
	for _, name := range promptNames {
		fmt.Fprintf(sum, "%q%q", p.all[name].System, p.all[name].Template)
	}
	return fmt.Sprintf("sha256 %x", sum.Sum(nil)[:8])
}

// Messages put a model's answers to the judge, for the score of a turn, from 1. reference is used where the category
// needs it.
func (p *Prompts) Messages(q *Question, reference, answers [Turns]string, turn int) []data.Message {
	prompt := p.all[PromptName(q.Category, turn)]
	text := eval.Template(prompt.Template).Fill(map[string]string{
		"question": q.Turns[0], "answer": answers[0],
		"question_1": q.Turns[0], "answer_1": answers[0], "question_2": q.Turns[1], "answer_2": answers[1],
		"ref_answer_1": reference[0], "ref_answer_2": reference[1],
	})
	messages := []data.Message{{Role: "user", Content: text}}
	if prompt.System != "" {
		messages = slices.Insert(messages, 0, data.Message{Role: "system", Content: prompt.System})
	}
	return messages
}
