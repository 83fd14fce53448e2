package mtbench

import (
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/posttrain/posttrain/internal/testkit/need"
)

const (
	question = `{"question_id":81,"category":"math","turns":["One?","Two?"],"reference":["1",""]}` + "\n"
	answer   = `{"question_id":81,"model_id":"m","choices":[{"index":0,"turns":["A","B"]}]}` + "\n"
	prompt   = `{"name":"single-v1","type":"single","system_prompt":"S","prompt_template":"{question}",` +
		`"output_format":"[[rating]]"}` + "\n"
)

// readers reads a file as each of the benchmark's files.
var readers = map[string]func(file fstest.MapFS) (n int, err error){
	"questions": func(f fstest.MapFS) (int, error) {
		all, _, err := readQuestions(f, "f.jsonl")
		return len(all), err
	},
	"answers": func(f fstest.MapFS) (int, error) {
		all, _, err := readAnswers(f, "f.jsonl")
		return len(all), err
	},
	"prompts": func(f fstest.MapFS) (int, error) {
		all, err := readTemplates(f, "f.jsonl")
		return len(all), err
	},
}

func file(text string) fstest.MapFS { return fstest.MapFS{"f.jsonl": {Data: []byte(text)}} }

func TestRead(t *testing.T) {
	q, _, err := readQuestions(file(question+strings.Replace(question, "81", `"q2"`, 1)), "f.jsonl")
	if err != nil || len(q) != 2 || q[1].ID != "q2" || !reflect.DeepEqual(q[0],
		Question{"81", "math", [2]string{"One?", "Two?"}, "f.jsonl:1"}) {
		t.Errorf("%+v, %v", q, err)
	}
	a, _, err := readAnswers(file(answer), "f.jsonl")
	if err != nil || len(a) != 1 || a[0] != (Answer{"81", "m", [2]string{"A", "B"}, "f.jsonl:1"}) {
		t.Errorf("%+v, %v", a, err)
	}
	p, err := readTemplates(file(prompt), "f.jsonl")
	if err != nil || p["single-v1"] != (Prompt{"single-v1", "single", "S", "{question}", "[[rating]]", "f.jsonl:1"}) {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestFaults(t *testing.T) {
	for _, c := range []struct{ kind, text, want string }{
		{"questions", "", "f.jsonl: no rows: the file is empty"},
		{"questions", question + question, "f.jsonl:2: question 81 is at f.jsonl:1 already: want it once"},
		{"questions", question + question[:40], "f.jsonl:2: bad JSON: the object is not closed"},
		{"questions", strings.Replace(question, "81", "[1]", 1),
			"f.jsonl:1: question_id is [1]: want a whole number or a text"},
		{"questions", strings.Replace(question, "81", "1.5", 1), "question_id is 1.5: want a whole number"},
		{"questions", strings.Replace(question, "math", " ", 1), "question_id or category is missing: want"},
		{"questions", strings.Replace(question, `,"Two?"`, "", 1), "f.jsonl:1: turns is a list of 1: want 2 texts"},
		{"questions", strings.Replace(question, `Two?`, "", 1), "turns[1] is empty: want a text"},
		{"questions", strings.Replace(question, `["One?","Two?"]`, "7", 1), "turns is of JSON type number: want slice"},
		{"answers", answer + answer, "question 81 is at f.jsonl:1 already"},
		{"answers", strings.Replace(answer, `,"B"`, "", 1), "choices[0].turns is a list of 1: want 2 texts"},
		{"answers", strings.Replace(answer, `{"index":0,"turns":["A","B"]}`, "", 1), "question_id or choices is " +
			"missing"},
		{"prompts", prompt + prompt, "f.jsonl:2: prompt single-v1 is at f.jsonl:1 already"},
		{"prompts", strings.Replace(prompt, "prompt_template", "template", 1), "prompt_template is missing: want name"},
	} {
		if _, err := readers[c.kind](file(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s of %s: %v: want %s", c.kind, c.text, err, c.want)
		}
	}
}

// TestReleased reads the benchmark's own files.
func TestReleased(t *testing.T) {
	dir := need.File(t, "data", "mt-bench")
	q, _, err := readQuestions(nil, filepath.Join(dir, "question.jsonl"))
	a, _, answersErr := readAnswers(nil, filepath.Join(dir, "reference_gpt-4.jsonl"))
	p, promptsErr := readTemplates(nil, filepath.Join(dir, "judge_prompts.jsonl"))
	if err != nil || answersErr != nil || promptsErr != nil || len(q) != 80 || len(a) != 30 || len(p) != 8 {
		t.Errorf("%d, %v; %d, %v; %d, %v", len(q), err, len(a), answersErr, len(p), promptsErr)
	}
}

// FuzzRead: a file of the benchmark is read, or refused in one line that begins with its name.
func FuzzRead(f *testing.F) {
	for _, text := range []string{question + question, answer, prompt, `{"question_id":1e999}`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for kind, read := range readers {
			n, err := read(file(text))
			if (err == nil) != (n > 0) {
				t.Fatalf("%s: %d rows, %v", kind, n, err)
			}
			if err != nil && (!strings.HasPrefix(err.Error(), "f.jsonl") || strings.Contains(err.Error(), "\n")) {
				t.Fatalf("%s: %q", kind, err)
			}
		}
	})
}
