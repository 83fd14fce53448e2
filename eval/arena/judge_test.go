package arena

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
)

func TestPrompts(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"old.yaml": "regex_pattern: \\[\\[(.)\\]\\]\nsystem_prompt: S\n" +
		"prompt_template: [\"{question_1}{answer_1}{answer_2}\"]", "new.yaml": "regex_patterns: [\"\\\\[(.)\\\\]\"]\n" +
		"prompt_template: \"{QUESTION}{ANSWER_A}{ANSWER_B}\"", "bad.yaml": "regex_pattern: (.)\n" +
		"prompt_template: \"{question_1}{answer_1}\"", "none.yaml": "regex_pattern: (.)\nprompt_template: Hi"} {
		expect.Write(t, filepath.Join(dir, name), text)
	}
	for name, system := range map[string]string{"": "You compare", "old.yaml": "S", "new.yaml": "You compare"} {
		path := ""
		if name != "" {
			path = filepath.Join(dir, name)
		}
		p, err := ReadPrompts(path)
		if err != nil {
			t.Fatal(name, err)
		}
		m := p.Messages("«q»", "«a»", "«b»")
		q, a, b := strings.Index(m[1].Content, "«q»"), strings.Index(m[1].Content, "«a»"),
			strings.Index(m[1].Content, "«b»")
		if len(m) != 2 || !strings.HasPrefix(m[0].Content, system) || q < 0 || a < q || b < a {
			t.Errorf("%s: %+v", name, m)
		}
	}
	for name, want := range map[string]string{
		"bad.yaml": "bad.yaml: prompt_template: there is no {answer_2} in it: want {question_1}, {answer_1}, " +
			"{answer_2}",
		"none.yaml": "none.yaml: prompt_template: there is no {",
	} {
		if _, err := ReadPrompts(filepath.Join(dir, name)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %s", err, want)
		}
	}
}
