package arena

import (
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/posttrain/posttrain/internal/testkit/need"
)

const (
	question    = `{"uid":"u1","category":"c","cluster":"Games","prompt":"Why?"}` + "\n"
	oldQuestion = `{"question_id":"u2","cluster":"Games","turns":[{"content":"How?"}]}` + "\n"
	answer      = `{"uid":"u1","model":"m","messages":[{"role":"user","content":"Why?"},{"role":"assistant",` +
		`"content":{"answer":"So."}}]}` + "\n"
	plainAnswer = `{"uid":"u2","model":"m","messages":[{"role":"assistant","content":"So it is."}]}` + "\n"
	oldAnswer   = `{"question_id":"u3","model_id":"m","choices":[{"index":0,"turns":[{"content":"Yes."}]}]}` + "\n"
)

func file(text string) fstest.MapFS { return fstest.MapFS{"f.jsonl": {Data: []byte(text)}} }

func TestRead(t *testing.T) {
	q, _, err := readQuestions(file(question+oldQuestion), "f.jsonl")
	if err != nil || len(q) != 2 || q[0] != (Question{"u1", "Games", "Why?", "f.jsonl:1"}) ||
		q[1] != (Question{"u2", "Games", "How?", "f.jsonl:2"}) {
		t.Errorf("%+v, %v", q, err)
	}
	a, _, err := readAnswers(file(answer+plainAnswer+oldAnswer), "f.jsonl")
	if err != nil || len(a) != 3 || a[0] != (Answer{"u1", "m", "So.", "f.jsonl:1"}) || a[1].Text != "So it is." ||
		a[2] != (Answer{"u3", "m", "Yes.", "f.jsonl:3"}) {
		t.Errorf("%+v, %v", a, err)
	}
}

func TestFileFaults(t *testing.T) {
	for text, want := range map[string]string{
		"":                                       "f.jsonl: no rows",
		question + question:                      "f.jsonl:2: question u1 is at f.jsonl:1 already: want it once",
		question[:30]:                            "f.jsonl:1: bad JSON: the object is not closed",
		strings.Replace(question, "Why?", "", 1): "f.jsonl:1: uid or prompt is missing: want uid and prompt",
		strings.Replace(oldQuestion, "question_id", "name", 1): "uid or prompt is missing",
	} {
		if _, _, err := readQuestions(file(text), "f.jsonl"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v: want %s", text, err, want)
		}
	}
	for text, want := range map[string]string{
		answer + answer: "f.jsonl:2: question u1 is at f.jsonl:1 already",
		answer[:60]:     "f.jsonl:1: bad JSON",
		answer + strings.Replace(plainAnswer, `"m"`, `"n"`,
			1): `model is "n", in the first row "m": want the answers of`,
		strings.Replace(answer, `"answer"`, `"text"`, 1): `content is {"text":"So."}: want a text, or an object`,
		strings.Replace(answer, "assistant", "user", 1):  "the assistant's message is missing: want uid, model",
	} {
		if _, _, err := readAnswers(file(text), "f.jsonl"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v: want %s", text, err, want)
		}
	}
}

const (
	oldPrompts = "system_prompt: Judge.\nregex_pattern: \\[\\[([AB<>=]+)\\]\\]\n" +
		"prompt_template: [\"{question_1} {answer_1} {answer_2}\"]\n"
	newPrompts = "regex_patterns:\n  - \\[\\[([AB<>=]+)\\]\\]\n  - \\[([AB<>=]+)\\]\n" +
		"prompt_template: \"{QUESTION} {ANSWER_A} {ANSWER_B}\"\n"
)

func TestVerdict(t *testing.T) {
	for prompts, cases := range map[string]map[string]string{
		oldPrompts: {"So: [[A>>B]]": "A>>B", "[[A>B]] and again [[A>B]]": "A>B", "[[B<<A]]": "A>>B", "[[A=B]]": "A=B",
			"[[A>B]], no, [[B>A]]": "contradiction", "[A>B]": "", "A>B": "", "[[a>b]]": "",
			"[[A>=B]]": "contradiction"},
		newPrompts: {"[[A>B]], no, [[b>a]]": "B>A", "[A>B]": "A>B", "[B>A] [[A=B]]": "A=B", "none": ""},
	} {
		p, err := parsePrompts("p.yaml", []byte(prompts))
		if err != nil {
			t.Fatal(err)
		}
		for said, want := range cases {
			if want == "contradiction" {
				want = ""
			}
			if got := p.Verdict(said); got != want {
				t.Errorf("%s: %q: want %q", said, got, want)
			}
		}
	}
}

func TestPromptFaults(t *testing.T) {
	for text, want := range map[string]string{
		"":              "prompt_template is missing or no text",
		"a: [":          "not YAML",
		newPrompts[:60]: "not YAML",
		"prompt_template: [a, b]\nregex_pattern: (a)": "want a text, or a list with one",
		"prompt_template: a":                          "regex_pattern is missing: want a pattern of a verdict",
		"prompt_template: a\nregex_pattern: a":        `the pattern of a verdict is "a": want a regular expression`,
		"prompt_template: a\nregex_pattern: (a":       `the pattern of a verdict is "(a"`,
	} {
		if _, err := parsePrompts("p.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v: want %s", text, err, want)
		}
	}
}

// TestReleased reads the benchmark's own files.
func TestReleased(t *testing.T) {
	dir := need.File(t, "data", "arena-hard")
	q, _, err := readQuestions(nil, filepath.Join(dir, "question.jsonl.gz"))
	a, _, answersErr := readAnswers(nil, filepath.Join(dir, "gpt-4-0314.jsonl.gz"))
	p, promptsErr := ReadPrompts(filepath.Join(dir, "arena-hard-v0.1.yaml"))
	if err != nil || answersErr != nil || promptsErr != nil || len(q) != 500 || len(a) != 500 || len(p.Patterns) != 2 {
		t.Errorf("%d, %v; %d, %v; %+v, %v", len(q), err, len(a), answersErr, p, promptsErr)
	}
}

// FuzzRead: a file of the benchmark is read, or refused in one line.
func FuzzRead(f *testing.F) {
	for _, text := range []string{question + oldQuestion, answer + plainAnswer + oldAnswer, oldPrompts, newPrompts} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		q, _, err := readQuestions(file(text), "f.jsonl")
		checkOutcome(t, len(q), err)
		a, _, err := readAnswers(file(text), "f.jsonl")
		checkOutcome(t, len(a), err)
		p, err := parsePrompts("p.yaml", []byte(text))
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Fatalf("%q", err)
		}
		if err == nil {
			p.Verdict(text)
		}
	})
}

func checkOutcome(t *testing.T, n int, err error) {
	t.Helper()
	if (err == nil) != (n > 0) || err != nil && (!strings.HasPrefix(err.Error(), "f.jsonl") ||
		strings.Contains(err.Error(), "\n")) {
		t.Fatalf("%d rows, %q", n, err)
	}
}
