package pairs

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/internal/testkit"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/local"
	"github.com/posttrain/posttrain/rollout/scorer"
)

// TestMain lets this test be the program of a user: it scores an answer by its length, all the same where the variable
// says so, and fails at the prompt that the variable names.
func TestMain(m *testing.M) {
	if limit := os.Getenv("SCORE_TEST_FAIL"); limit != "" {
		scoreLines(limit)
	}
	act := os.Getenv("PAIRS_TEST_ACT")
	if act == "" {
		os.Exit(m.Run())
	}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var a struct{ Prompt, Response data.Text }
		if err := json.Unmarshal(in.Bytes(), &a); err != nil || a.Prompt.Plain == act {
			os.Exit(1)
		}
		if act == "tie" {
			a.Response = data.Text{}
		}
		fmt.Println(len(a.Response.Last()))
	}
	os.Exit(0)
}

// tiny are options for n prompts "Q0", "Q1", … and short answers of the embedded model.
func tiny(t *testing.T, n int) Options {
	t.Helper()
	dir, text := t.TempDir(), ""
	for i := range n {
		text += fmt.Sprintf(`{"prompt":"Q%d"}`+"\n", i)
	}
	o := Spec.Defaults()
	o.Backend, o.Input, o.Out = "go", filepath.Join(dir, "prompts.jsonl"), filepath.Join(dir, "pairs.jsonl")
	o.Keep, o.N, o.Answers, o.MaxNew = filepath.Join(dir, "answers.jsonl"), 0, 4, 3
	o.Reward.Kind, o.Reward.Command = scorer.Command, []string{os.Args[0]}
	expect.Write(t, o.Input, text)
	t.Setenv("PAIRS_TEST_ACT", "never")
	return o
}

// stopper interrupts a run when a number of a kind are done.
type stopper struct {
	run.Reporter
	what string
	at   int
	stop func()
}

type stoppingBar struct {
	run.Bar
	s *stopper
}

func (s *stopper) Progress(what string, done, total int) run.Bar {
	if what != s.what {
		return s.Reporter.Progress(what, done, total)
	}
	return stoppingBar{s.Reporter.Progress(what, done, total), s}
}

func (b stoppingBar) Step(done int, values map[string]float64) {
	if b.Bar.Step(done, values); done >= b.s.at {
		b.s.stop()
	}
}

// TestPairs: a run that is interrupted while answers are drawn, and whose program fails once, ends in the files of a
// run that was not disturbed.
func TestPairs(t *testing.T) {
	o := tiny(t, 40)
	result, err := Run(t.Context(), o, nil)
	if err != nil {
		t.Fatal(err)
	}
	pairs, answers := expect.Read(t, o.Out), expect.Read(t, o.Keep)
	if !strings.HasPrefix(result.Summary, fmt.Sprintf("%s: %d pairs of 40 prompts, mean score ", o.Out,
		len(result.Pairs))) || len(result.Pairs) == 0 {
		t.Error(result.Summary)
	}
	for _, p := range result.Pairs {
		if len(p.Chosen.Plain) != int(p.ChosenScore) || len(p.Rejected.Plain) != int(p.RejectedScore) ||
			p.ChosenScore <= p.RejectedScore {
			t.Errorf("%+v", p)
		}
	}
	kept, report, err := data.ReadPreferences(o.Keep, data.PreferenceOptions{})
	if err != nil || report.Read != 40 || len(kept) != len(result.Pairs) {
		t.Errorf("%v, %v", err, report)
	}
	if left, _ := filepath.Glob(o.Out + ".*"); len(left) > 0 {
		t.Errorf("%v are still there", left)
	}
	again := tiny(t, 40)
	ctx, cancel := context.WithCancel(t.Context())
	_, err = Run(ctx, again, &stopper{run.Listen(nil), "prompt", 32, cancel})
	if !errors.Is(err, recipe.ErrInterrupted) {
		t.Fatal(err)
	}
	expect.Error(t, err, "interrupted: 32 of 40 prompts are answered; the same command continues")
	t.Setenv("PAIRS_TEST_ACT", "Q7")
	_, err = Run(t.Context(), again, nil)
	expect.Error(t, err, "exit status 1")
	other := again
	other.Seed++
	_, err = Run(t.Context(), other, nil)
	expect.Error(t, err, "has the answers of an interrupted run with other prompts, another model or other settings")
	t.Setenv("PAIRS_TEST_ACT", "never")
	again.Model = "embedded"
	if _, err := Run(t.Context(), again, nil); err != nil {
		t.Fatal(err)
	}
	if expect.Read(t, again.Out) != pairs || expect.Read(t, again.Keep) != answers {
		t.Error("the interrupted run has other pairs or answers")
	}
}

// TestTemplate: the chat template gets what the options say, so that answers are those to the text that it makes.
func TestTemplate(t *testing.T) {
	plain := tiny(t, 6)
	text := strings.ReplaceAll(expect.Read(t, plain.Input), `"Q`, `"2024 Ask Q`)
	expect.Write(t, plain.Input, text)
	plain.Template.Plain = "text"
	want, err := Run(t.Context(), plain, nil)
	if err != nil {
		t.Fatal(err)
	}
	o := tiny(t, 6)
	template := filepath.Join(t.TempDir(), "ask.jinja")
	jinja := "{{ strftime_now('%Y') }} {{ verb }} {{ messages[0]['content'] }}"
	expect.Write(t, template, jinja)
	o.Chat, o.Template.Template, o.Template.Variables, o.Template.Date = true, template, []string{"verb=Ask"},
		"2024-01-31"
	ctx, cancel := context.WithCancel(t.Context())
	_, err = Run(ctx, o, &stopper{run.Listen(nil), "prompt", 1, cancel})
	expect.Error(t, err, "interrupted")
	changed := o
	changed.Template.Variables = []string{"verb=Say"}
	_, err = Run(t.Context(), changed, nil)
	expect.Error(t, err, "has the answers of an interrupted run with other prompts, another model or other settings")
	for _, o.Chat = range []bool{true, false} { // the rows that are written are messages, or as they were
		got, err := Run(t.Context(), o, nil)
		if err != nil || len(got.Pairs) != len(want.Pairs) {
			t.Fatal(got, err)
		}
		for i, p := range got.Pairs {
			q := want.Pairs[i]
			if p.Chosen.Last() != q.Chosen.Last() || p.Rejected.Last() != q.Rejected.Last() ||
				p.Prompt.IsChat() != o.Chat {
				t.Errorf("%+v, want %+v", p, q)
			}
		}
	}
	for want, change := range map[string]func(*Options){
		"plain text, which has no chat template: remove":   func(o *Options) { o.Template.Plain = "text" },
		"chat_template.plain text: it is about the":        func(o *Options) { o.Chat, o.Template.Plain = true, "text" },
		"chat_template.variables \"9\": want a name and a": func(o *Options) { o.Template.Variables = []string{"9"} },
		"the chat template has no variable x":              func(o *Options) { o.Template.Variables = []string{"x=1"} },
		"none.jinja: no such file":                         func(o *Options) { o.Template.Template = "none.jinja" },
	} {
		bad := o
		bad.Out = filepath.Join(t.TempDir(), "pairs.jsonl")
		change(&bad)
		_, err := Run(t.Context(), bad, nil)
		expect.Error(t, err, want)
	}
}

// TestTies: without any pair there is one line, and all answers are kept.
func TestTies(t *testing.T) {
	o := tiny(t, 3)
	t.Setenv("PAIRS_TEST_ACT", "tie")
	_, err := Run(t.Context(), o, nil)
	expect.Error(t, err, "prompts.jsonl: no prompt of 3 gives a pair: 3 (all answers score the same) (mean score 0); "+
		"sample more answers or at a higher temperature, or take another reward")
	if strings.Count(expect.Read(t, o.Keep), `"all_rm_scores":[0,0,0,0]`) != 3 {
		t.Error(expect.Read(t, o.Keep))
	}
}

// TestMeanOfScores: an answer without a score counts in no mean.
func TestMeanOfScores(t *testing.T) {
	q, w := &ask.Question{Prompt: data.Text{Plain: "Q"}}, &work{}
	answer := func(text string, s ask.Score) ask.Answer {
		return ask.Answer{To: q, Completion: rollout.Completion{Text: text}, Score: s}
	}
	w.groups = [][]ask.Answer{{answer("a", ask.Score{Value: 1}), answer("b", ask.Score{Missing: "null"}),
		answer("c", ask.Score{Value: 0.5})}}
	w.o.Out, w.o.MinScore, w.o.Write = filepath.Join(t.TempDir(), "demos.jsonl"), 1, Demonstrations
	got, err := w.conclude([]ask.Score{{Value: 1}, {Missing: "no reply"}, {Value: 0.5}})
	if err != nil || !strings.Contains(got.Summary, "1 of 3 answers have a score of 1 or more (mean 0.750)") ||
		!strings.Contains(got.Summary, "\n1 answers have no score; the last: no reply\n") {
		t.Errorf("%v, %v", got, err)
	}
	w.o.MinScore = 2
	_, err = w.demonstrations()
	expect.Error(t, err, "the best of 3 has 1.00, the mean is 0.75")
	w.groups[0] = w.groups[0][1:2]
	_, err = w.demonstrations()
	expect.Error(t, err, "none of 1 answers has a score; the last: null")
}

// TestPromptsThatDoNotFit are counted, and have no answers.
func TestPromptsThatDoNotFit(t *testing.T) {
	o := tiny(t, 2)
	long := fmt.Sprintf(`{"prompt":"%s"}`+"\n", strings.Repeat("word ", 3000))
	expect.Write(t, o.Input, expect.Read(t, o.Input)+long)
	result, err := Run(t.Context(), o, nil)
	if err != nil || !strings.Contains(result.Summary, "\n1 prompts are too long for the model and have no answers\n") {
		t.Errorf("%v: %v", err, result)
	}
	expect.Write(t, o.Input, long)
	_, err = Run(t.Context(), o, nil)
	expect.Error(t, err, "prompts.jsonl: no prompt fits: all 1 have more than 5")
}

// TestServer asks a server's model, and another that judges.
func TestServer(t *testing.T) {
	var asked atomic.Int32
	agent := testkit.StartJudge(t, testkit.JudgeOptions{Reply: func(prompt string) string {
		return fmt.Sprintf("%s %d", prompt, asked.Add(1))
	}})
	judge := testkit.StartJudge(t, testkit.JudgeOptions{Reply: func(prompt string) string {
		return fmt.Sprintf("Score: %d", 1+len(prompt)%9)
	}})
	t.Setenv("OPENAI_API_KEY", "")
	o := tiny(t, 12)
	o.Chat, o.Server.BaseURL, o.Server.APIModel = true, agent.URL, "m"
	o.Reward.Kind, o.Reward.Command, o.Reward.Judge.BaseURL, o.Reward.Judge.Model = scorer.Judge, nil, judge.URL, "j"
	result, err := Run(t.Context(), o, nil)
	if err != nil || asked.Load() != 48 {
		t.Fatalf("%v, %d answers", err, asked.Load())
	}
	if p := result.Pairs[0]; !strings.HasPrefix(p.Chosen.Last(), "Q") || !p.Prompt.IsChat() {
		t.Errorf("%+v", p)
	}
}

func TestOptionsThatContradict(t *testing.T) {
	for want, change := range map[string]func(*Options){
		"answers 1: a pair has a best and a worst one":  func(o *Options) { o.Answers = 1 },
		"temperature 0: all answers to a prompt are":    func(o *Options) { o.Temperature = 0 },
		"reward.kind ci: prompts of a file have no":     func(o *Options) { o.Reward.Kind, o.Reward.Command = "ci", nil },
		"reward.kind command: contextual-integrity":     func(o *Options) { o.Input = "" },
		"server.api_model is missing":                   func(o *Options) { o.Server.BaseURL = "http://localhost:1/v1" },
		`keep "x.csv": want a name that ends in .jsonl`: func(o *Options) { o.Keep = "x.csv" },
		"out is the same file; want another name":       func(o *Options) { o.Keep = o.Out },
		"reward.kind is missing: want command, judge, ": func(o *Options) { o.Reward.Kind = "" },
	} {
		o := tiny(t, 1)
		change(&o)
		_, err := Run(t.Context(), o, nil)
		expect.Error(t, err, want)
	}
}

// TestAnswersOfOtherTools: kept answers to prompts with other tools are not taken.
func TestAnswersOfOtherTools(t *testing.T) {
	of := func(tools string) string {
		text := data.Text{Messages: []data.Message{{Role: "user", Content: "Q", Tools: tools}}}
		w := &work{questions: []ask.Question{{Prompt: text}}}
		w.o.Server.BaseURL = "http://localhost"
		id, err := w.identify()
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	first, again := of("[1]"), of("[1]")
	if first == of("[2]") || first != again || first == of("") {
		t.Error("tools are not part of what answers are of")
	}
}

// TestAnswersOfOtherWeights: kept answers of the weights that a folder had before are not taken.
func TestAnswersOfOtherWeights(t *testing.T) {
	m, tok, err := local.Load("embedded")
	if err != nil {
		t.Fatal(err)
	}
	w := &work{}
	w.o.Model = t.TempDir()
	of := func(seed uint64) string {
		err := errors.Join(model.Init(m.Config, seed).Save(w.o.Model, "float32"), tok.CopyTo(w.o.Model))
		id, wrong := w.identify()
		if err := errors.Join(err, wrong); err != nil {
			t.Fatal(err)
		}
		return id
	}
	if first := of(1); first == of(2) || first != of(1) {
		t.Error("weights are not part of what answers are of")
	}
}
