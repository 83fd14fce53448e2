package mtbench

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/posttrain/posttrain/eval/bench"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// answered are rows of a model's answers to n questions, 81 and so on.
func answered(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"question_id":%d,"model_id":"gpt","choices":[{"turns":["first %[1]d","second %[1]d"]}]}`+"\n",
			81+i)
	}
	return b.String()
}

// echo is a server's model that repeats the whole conversation, with its temperature.
func echo(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q struct {
			Messages    []struct{ Role, Content string }
			Temperature float64
		}
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			t.Error(err)
		}
		text := fmt.Sprintf("t=%v", q.Temperature)
		for _, m := range q.Messages {
			text += " " + m.Role + ":" + m.Content
		}
		_, _ = w.Write(testkit.Completion("", "<think>hm</think>\n"+text))
	}))
	t.Cleanup(s.Close)
	return s.URL + "/v1"
}

// rated are options of a run with questions of these categories and a judge.
func rated(t *testing.T, judge string, categories ...string) Options {
	o := Benchmark.Defaults()
	o.Questions = expect.File(t, "question.jsonl", asked(categories...))
	o.References = expect.File(t, "reference.jsonl", answered(len(categories)))
	o.Judge.BaseURL, o.Judge.Model = judge, "judge"
	o.Judge.Retries = 0
	return o
}

// TestOtherReferences: eval compare warns of other reference answers.
func TestOtherReferences(t *testing.T) {
	judge := testkit.StartJudge(t, testkit.JudgeOptions{Reply: func(string) string { return "Rating: [[5]]" }})
	o := rated(t, judge.URL, "math")
	o.Agent.BaseURL, o.Agent.APIModel, o.Dir = echo(t), "echo", filepath.Join(t.TempDir(), "a")
	other := o
	other.Dir, other.References = o.Dir+"b", expect.File(t, "other.jsonl", strings.Replace(answered(1), "first", "third", 1))
	for _, o := range []Options{o, other} {
		if _, _, err := Benchmark.Run(t.Context(), o, nil); err != nil {
			t.Fatal(err)
		}
	}
	c, err := bench.Compare(o.Dir, other.Dir)
	if err != nil || len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0], `was judged with references "1, sha256 `) {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestRun: thoughts are not judged, the second turn sees the first one's own answer without them, each category has its
// temperature, and the judge sees a reference where the category has one.
func TestRun(t *testing.T) {
	shown := make(chan string, 100)
	judge := testkit.StartJudge(t, testkit.JudgeOptions{Watch: func(prompt string) { shown <- prompt },
		Reply: func(prompt string) string {
			if strings.Contains(prompt, "## Second answer") {
				return "Rating: [[8]]"
			}
			return "<think>[[9]], or [[3]]?</think>Rating: [[5]] or so"
		}})
	o := rated(t, judge.URL, "writing", "math")
	o.Agent.BaseURL, o.Agent.APIModel = echo(t), "echo"
	dir := filepath.Join(t.TempDir(), "run")
	o.Dir = dir
	result, _, err := Benchmark.Run(t.Context(), o, nil)
	if err != nil {
		t.Fatal(err)
	}
	if s := result; s.Model != "echo" || s.Score.Value() != 6.5 || s.Turn1.Value() != 5 ||
		s.Turn2.Value() != 8 || s.Missing != 0 || len(s.Categories) != 2 || result.Judge != "judge" {
		t.Errorf("%+v", result)
	}
	cases, err := os.ReadFile(filepath.Join(dir, "cases.jsonl"))
	for _, want := range []string{
		`{"id":"81","category":"writing","score":6.5,"turns":[5,8],"outputs":["t=0.7 user:One?","t=0.7 user:One? ` +
			`assistant:t=0.7 user:One? user:Two?"]}`,
		`{"id":"82","category":"math","score":6.5,"turns":[5,8],"outputs":["t=0 user:One?",`,
	} {
		if err != nil || !strings.Contains(string(cases), want) {
			t.Errorf("%s, %v: want %s", cases, err, want)
		}
	}
	close(shown)
	references := 0
	for prompt := range shown {
		if has := strings.Contains(prompt, "first 82"); has {
			references++
		}
		if strings.Contains(prompt, "first 81") {
			t.Errorf("a writer's judge sees a reference: %s", prompt)
		}
	}
	if references != 2 {
		t.Errorf("%d prompts with the reference, want 2", references)
	}
	requests, _ := judge.Requests()
	if _, _, err := Benchmark.Run(t.Context(), o, nil); err != nil {
		t.Error(err)
	}
	if now, _ := judge.Requests(); now != requests {
		t.Errorf("a finished run asks %d questions more", now-requests)
	}
}

// TestRatings: each answer is rated three times, by three replies, and their mean is its score; one without a score does
// not count. The published figures come with what is not as it was there.
func TestRatings(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]int{}
	judge := testkit.StartJudge(t, testkit.JudgeOptions{Reply: func(prompt string) string {
		mu.Lock()
		defer mu.Unlock()
		seen[prompt]++
		return []string{"[[6]]", "[[7]]", "[[8]]"}[seen[prompt]-1]
	}})
	o := rated(t, judge.URL, "writing", "math")
	o.Agent.Answers, o.Ratings, o.Dir = expect.File(t, "a.jsonl", answered(2)), 3, filepath.Join(t.TempDir(), "run")
	s, at, err := Benchmark.Run(t.Context(), o, nil)
	if err != nil {
		t.Fatal(err)
	}
	if n, _ := judge.Requests(); n != 2*Turns*3 || s.Score.Value() != 7 || s.Judged != 4 || s.Ratings != 3 ||
		!strings.Contains(s.String(), "judge: judge, the mean of 3 ratings of each answer\n") {
		t.Errorf("%d requests, %+v", n, s)
	}
	for _, want := range []string{"table 3, mean of 3 judge scores", "Qwen2.5-32B-Instruct", "not as published:\n" +
		"  judge: judge (published: gpt-4)\n  the judge's prompts: our own words (published: the benchmark's, --prompts " +
		"FILE)\n"} {
		if !strings.Contains(at.Figures, want) {
			t.Errorf("lacks %q: %s", want, at.Figures)
		}
	}
	if o.Ratings = 1; strings.Contains(at.Figures, "ratings of an answer") || len((&rating{Options: &o}).differs(
		&bench.Found{})) != 3 {
		t.Error(at.Figures)
	}
	if _, _, err := Benchmark.Run(t.Context(), o, nil); err == nil || !strings.Contains(err.Error(), "question") {
		t.Errorf("fewer ratings than there are: %v", err)
	}
}

// TestUnscored: a reply without a score does not count, and the judge is not asked again.
func TestUnscored(t *testing.T) {
	judge := testkit.StartJudge(t, testkit.JudgeOptions{Reply: func(prompt string) string {
		if strings.Contains(prompt, "second 81") {
			return "I would rather not say."
		}
		return "[[4]]"
	}})
	o := rated(t, judge.URL, "writing", "stem")
	o.References, o.Agent.Answers = "", expect.File(t, "gpt-x.jsonl", answered(2))
	dir := filepath.Join(t.TempDir(), "run")
	o.Dir = dir
	result, _, err := Benchmark.Run(t.Context(), o, nil)
	if err != nil {
		t.Fatal(err)
	}
	if s := result; s.Model != "gpt-x" || s.Score.Value() != 4 || s.Judged != 3 || s.Missing != 1 ||
		!strings.Contains(result.String(), "warning: 1 of 4 ") {
		t.Errorf("%+v: %s", s, result)
	}
	if n, _ := judge.Requests(); n != 4 {
		t.Errorf("%d requests, want 4", n)
	}
}

func TestRunFaults(t *testing.T) {
	mute := testkit.StartJudge(t, testkit.JudgeOptions{Reply: func(string) string { return "no comment" }})
	for name, c := range map[string]struct {
		change func(o *Options)
		want   string
	}{
		"no references": {func(o *Options) { o.References = "" },
			"question.jsonl:2: question 82 is of category math, whose judge sees a reference answer: want one in " +
				"references (no file is given, such as reference_gpt-4.jsonl)"},
		"a reference missing": {func(o *Options) { o.References = expect.File(t, "r.jsonl", answered(1)) },
			"r.jsonl has none)"},
		"questions cut short": {func(o *Options) { o.References = expect.File(t, "r.jsonl", answered(3)) },
			"r.jsonl:3: a reference answer to question 83, which "},
		"questions cut in a line": {func(o *Options) { o.Questions = expect.File(t, "q.jsonl", asked("math")[:30]) },
			"q.jsonl:1: bad JSON: the object is not closed"},
		"an answer missing": {func(o *Options) { o.Agent.Answers = expect.File(t, "a.jsonl", answered(1)) },
			"a.jsonl: 1 of 2 questions have no answer (first: 82)"},
		"prompts cut short": {func(o *Options) {
			o.Prompts = expect.File(t, "p.jsonl", `{"name":"single-v1","type":"single",`+
				`"prompt_template":"{question}{answer}","output_format":"[[rating]]"}`)
		},
			"p.jsonl: it has no prompt single-math-v1: want it, of type single; is the file cut short?"},
		"a judge without numbers": {func(o *Options) {},
			`the judge gives no verdicts: none of 4 replies has a line such as "Rating: [[7]]" (the last`},
		"no questions": {func(o *Options) { o.Questions = "" }, "questions is missing: want a file of questions"},
	} {
		o := rated(t, mute.URL, "writing", "math")
		o.Agent.Answers = expect.File(t, "a.jsonl", answered(2))
		c.change(&o)
		o.Dir = filepath.Join(t.TempDir(), "run")
		_, _, err := Benchmark.Run(t.Context(), o, nil)
		t.Run(name, func(t *testing.T) { expect.Error(t, err, c.want) })
	}
}

func asked(categories ...string) string {
	var b strings.Builder
	for i, category := range categories {
		fmt.Fprintf(&b, `{"question_id":%d,"category":%q,"turns":["One?","Two?"]}`+"\n", 81+i, category)
	}
	return b.String()
}

// TestJudgements: scores in the benchmark's own form, of the model whose answers are recorded, count without a judge.
func TestJudgements(t *testing.T) {
	const rows = `{"question_id":81,"model":"gpt","turn":1,"score":9,"user_prompt":"Rate this: first 81"}
{"question_id":81,"model":"gpt","turn":2,"score":-1,"user_prompt":"And this: second 81"}
{"question_id":81,"model":"other","turn":1,"score":1,"user_prompt":"Rate that"}
`
	run := func(rows string) (*Result, error) {
		o := rated(t, "", "writing")
		o.Agent.Answers, o.Judgments = expect.File(t, "a.jsonl", answered(1)), expect.File(t, "j.jsonl", rows)
		o.Judge.Model = ""
		o.Dir = filepath.Join(t.TempDir(), "run")
		result, _, err := Benchmark.Run(t.Context(), o, nil)
		return result, err
	}
	if s, err := run(rows); err != nil || s.Score.Value() != 9 || s.Missing != 1 || s.Judge != "recorded in j.jsonl" {
		t.Errorf("%+v, %v", s, err)
	}
	for old, new := range map[string]string{"gpt": "gpt-2", "first 81": "last 81", `"turn":2`: `"turn":3`} {
		_, err := run(strings.ReplaceAll(rows, old, new))
		expect.Error(t, err, map[string]string{"gpt": `j.jsonl: it has no judgement of "gpt", whose answers are recorded`,
			"first 81": "j.jsonl: the verdict on 81 was given to another prompt or answer",
			`"turn":2`: "j.jsonl:2: question_id, turn or score is missing or wrong"}[old])
	}
}
