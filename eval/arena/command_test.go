package arena

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit"

	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// rowsFile writes rows of n questions into a file with a name.
func rowsFile(t *testing.T, name, form string, n int) string {
	t.Helper()
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, form+"\n", i)
	}
	return expect.File(t, name, b.String())
}

const (
	asked = `{"uid":"u%[1]d","prompt":"Question %[1]d?"}`
	base  = `{"uid":"u%d","model":"base","messages":[{"role":"assistant","content":"the old answer"}]}`
	ours  = `{"uid":"u%d","model":"ours","messages":[{"role":"assistant","content":"the new answer"}]}`
)

// judged are options of a run of n questions with recorded answers and a judge.
func judged(t *testing.T, judge string, n int) Options {
	o := Benchmark.Defaults()
	o.Rounds = 50
	o.Questions, o.Baseline = rowsFile(t, "question.jsonl", asked, n), rowsFile(t, "base.jsonl", base, n)
	o.Agent.Answers = rowsFile(t, "ours.jsonl", ours, n)
	o.Judge.BaseURL, o.Judge.Model, o.Judge.Retries = judge, "judge", 0
	return o
}

// newIsA says that the judge sees the model's answer as A.
func newIsA(prompt string) bool {
	return strings.Index(prompt, "the new") < strings.Index(prompt, "the old")
}

// TestRun: both orders are judged, a judge that has come to no verdict is asked to continue.
func TestRun(t *testing.T) {
	judge := testkit.StartJudge(t, testkit.JudgeOptions{Reply: func(prompt string) string {
		switch {
		case strings.HasPrefix(prompt, "Continue, and"):
			return "Then [[B>A]]."
		case newIsA(prompt) && strings.Contains(prompt, "Question 1?"):
			return "Let me think."
		case newIsA(prompt):
			return "[[A>>B]]"
		}
		return "[[B>A]]"
	}})
	o := judged(t, judge.URL, 2)
	dir := filepath.Join(t.TempDir(), "run")
	o.Dir = dir
	result, _, err := Benchmark.Run(t.Context(), o, nil)
	if err != nil {
		t.Fatal(err)
	}
	// Wins are 3 and 1 of question 0, and 1 of the weights 1 and 1 of question 1.
	if result.Model != "ours" || result.Baseline != "base" || result.Judge != "judge" || result.Games != 4 ||
		result.Missing != 0 || fmt.Sprintf("%.2f", result.Score.Score) != "83.33" {
		t.Errorf("%+v", result)
	}
	cases, err := os.ReadFile(filepath.Join(dir, "cases.jsonl"))
	for _, want := range []string{
		`{"id":"u0","score":100,"verdicts":["B>A","A>>B"],"output":"the new answer","baseline":"the old answer"}`,
		`{"id":"u1","score":50,"verdicts":["B>A","B>A"],`,
	} {
		if err != nil || !strings.Contains(string(cases), want) {
			t.Errorf("%s, %v: want %s", cases, err, want)
		}
	}
	if n, _ := judge.Requests(); n != 5 {
		t.Errorf("%d requests, want 5", n)
	}
}

// TestNoVerdict: a game whose judge comes to no verdict even then does not count.
func TestNoVerdict(t *testing.T) {
	judge := testkit.StartJudge(t, testkit.JudgeOptions{Reply: func(prompt string) string {
		if newIsA(prompt) && strings.Contains(prompt, "the new") {
			return "<think>[[B>A]]?</think>[[A=B]]"
		}
		return "Both [[A>B]] and [[B>A]]." // a contradiction
	}})
	o := judged(t, judge.URL, 1)
	o.Dir = filepath.Join(t.TempDir(), "run")
	result, _, err := Benchmark.Run(t.Context(), o, nil)
	if err != nil || result.Games != 1 || result.Missing != 1 || result.Score.Score != 50 {
		t.Errorf("%+v, %v", result, err)
	}
}

func TestRunFaults(t *testing.T) {
	mute := testkit.StartJudge(t, testkit.JudgeOptions{Reply: func(string) string { return "no comment" }})
	for name, c := range map[string]struct {
		change func(o *Options)
		want   string
	}{
		"an answer of the baseline missing": {func(o *Options) { o.Baseline = rowsFile(t, "b.jsonl", base, 1) },
			"b.jsonl: no answer of base to question u1: want one to each question of "},
		"an answer missing": {func(o *Options) { o.Agent.Answers = rowsFile(t, "a.jsonl", ours, 1) },
			"a.jsonl: no answer of ours to question u1"},
		"questions cut short": {func(o *Options) { o.Questions = rowsFile(t, "q.jsonl", `{"uid":"u%d","prompt":"`, 1) },
			"q.jsonl:1: bad JSON: the object is not closed"},
		"a prompt without a pattern": {func(o *Options) { o.Prompts = rowsFile(t, "p.yaml", "prompt_template: x # %d", 1) },
			"p.yaml: regex_pattern is missing: want a pattern of a verdict"},
		"a judge without verdicts": {func(o *Options) {},
			`the judge gives no verdicts: none of 4 replies has a line such as "[[A>B]]" (the last one: "no comment"`},
		"no baseline": {func(o *Options) { o.Baseline = "" }, "baseline is missing: want a file of the baseline's " +
			"answers"},
		"no questions": {func(o *Options) { o.Questions = "" }, "questions is missing: want a file of questions"},
	} {
		o := judged(t, mute.URL, 2)
		c.change(&o)
		o.Dir = filepath.Join(t.TempDir(), "run")
		_, _, err := Benchmark.Run(t.Context(), o, nil)
		t.Run(name, func(t *testing.T) { expect.Error(t, err, c.want) })
	}
}

// TestJudgements: games in the benchmark's own form count without a judge, if they are of these answers.
func TestJudgements(t *testing.T) {
	const row = `{"question_id":"u%d","model":"ours","games":[{"user_prompt":"the old answer, the new answer","score":` +
		`"B>A"},{"user_prompt":"the new answer, the old answer","score":"A<B"}]}`
	run := func(row string, n int) (*Result, error) {
		o := judged(t, "", 2)
		o.Judgments, o.Judge.Model, o.Dir = rowsFile(t, "j.jsonl", row, n), "", filepath.Join(t.TempDir(), "run")
		result, _, err := Benchmark.Run(t.Context(), o, nil)
		return result, err
	}
	if s, err := run(row, 2); err != nil || s.Games != 4 || s.Score.Score != 50 || s.Judge != "recorded in j.jsonl" {
		t.Errorf("%+v, %v", s, err)
	}
	_, err := run(row, 1)
	expect.Error(t, err, "j.jsonl: 2 of 4 questions have no verdict (first: u1, 1)")
	_, err = run(row, 3)
	expect.Error(t, err, `j.jsonl: a verdict on "u2", which is no item of the data`)
	_, err = run(strings.ReplaceAll(row, "new", "newest"), 2)
	expect.Error(t, err, "j.jsonl: the verdict on u0 was given to another prompt or answer")
	newer := strings.NewReplacer(`"question_id"`, `"baseline":"base","uid"`, `"user_prompt":"`,
		`"prompt":[{"role":"user","content":"`, `answer","score"`, `answer"}],"score"`).Replace(row)
	if s, err := run(newer, 2); err != nil || s.Games != 4 || s.Score.Score != 50 {
		t.Errorf("%+v, %v", s, err)
	}
	for was, is := range map[string][2]string{
		`"base"`:  {`"old"`, `j.jsonl:1: baseline is "old": want judgements with "base", which this run is of`},
		`"ours"`:  {`"his"`, `j.jsonl:1: model is "his": want judgements with "ours", which this run is of`},
		"the new": {"another", "the verdict on u0 was given to another prompt or answer"},
	} {
		_, err = run(strings.ReplaceAll(newer, was, is[0]), 2)
		expect.Error(t, err, is[1])
	}
	_, err = run(strings.Replace(row, "A<B", "A?B", 1), 2)
	expect.Error(t, err, `games[1].score is "A?B": want A>>B, A>B, A=B, B>A, B>>A, or null`)
}
