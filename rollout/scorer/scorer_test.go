package scorer

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/rollout"
)

// TestMain lets this test be the program of a user: the variable says how it behaves.
func TestMain(m *testing.M) {
	if act := os.Getenv("SCORER_TEST_ACT"); act != "" {
		behave(act)
	}
	os.Exit(expect.NoLeaks(m))
}

// leave leaves a child of a program, where the system has groups of processes.
var leave func(act string)

// behave scores answers by their length, or fails.
func behave(act string) {
	in := bufio.NewScanner(os.Stdin)
	for n := 1; in.Scan(); n++ {
		var a struct {
			Prompt   any
			Response string
		}
		if err := json.Unmarshal(in.Bytes(), &a); err != nil {
			panic(err)
		}
		switch {
		case act == "hang":
			select {}
		case act == "crash" && n == 2:
			fmt.Fprintln(os.Stderr, "Traceback\nValueError: no such model")
			os.Exit(3)
		case act == "few" && n == 2:
			os.Exit(0)
		case act == "words" && n == 2:
			fmt.Println("very good")
		case act == "NaN" && n == 2:
			fmt.Println("NaN")
		case act == "null" && n == 1:
			fmt.Println("null")
		case act == "null" && a.Response == "object":
			fmt.Println(`{"score": null}`)
		case act == "flood":
			for {
				if _, err := fmt.Println(strings.Repeat("very good ", 100)); err != nil {
					os.Exit(0)
				}
			}
		case strings.HasPrefix(act, "leave"):
			leave(act)
			fmt.Println(len(a.Response))
		case act == "objects":
			fmt.Printf("{\"score\": %d, \"why\": \"length\"}\n", len(a.Response))
		default:
			fmt.Println(len(a.Response))
		}
		if act == "many" {
			fmt.Println(1)
		}
	}
	os.Exit(0)
}

func plain(texts ...string) (answers []ask.Answer) {
	for i, text := range texts {
		q := &ask.Question{Prompt: data.Text{Plain: "Q"}, Source: fmt.Sprintf("p.jsonl:%d", i+1)}
		answers = append(answers, ask.Answer{Completion: rollout.Completion{Text: text}, To: q})
	}
	return answers
}

// verdicts are the values of scores, each with the reason why there is none.
func verdicts(scores []ask.Score) string {
	type verdict struct {
		value   float64
		missing string
	}
	var all []verdict
	for _, s := range scores {
		all = append(all, verdict{s.Value, s.Missing})
	}
	return fmt.Sprint(all)
}

func openCommand(t *testing.T, act string, timeout time.Duration) ask.Judge {
	t.Helper()
	t.Setenv("SCORER_TEST_ACT", act)
	o := Defaults()
	o.Kind, o.Command, o.Timeout = Command, []string{os.Args[0]}, timeout
	return expect.Must(Open(o, Caller{}))(t)
}

func TestCommand(t *testing.T) {
	for _, act := range []string{"numbers", "objects"} {
		scores, err := openCommand(t, act, time.Minute).Score(t.Context(), plain("a", "", "<é>\n"))
		if err != nil || verdicts(scores) != "[{1 } {0 } {5 }]" {
			t.Errorf("%s: %v, %v", act, scores, err)
		}
	}
}

// TestCommandsThatFail gives each a line.
func TestCommandsThatFail(t *testing.T) {
	for act, want := range map[string]string{
		"crash": "exit status 3: ValueError: no such model",
		"few":   "it wrote 1 scores for 3 answers from p.jsonl:1 on: want one a line for each",
		"many":  "it wrote 6 scores for 3 answers from p.jsonl:1 on",
		"words": `line 2 of its output is "very good": want a finite number, {"score": number}, or null`,
		"flood": "it wrote more than 16384 bytes: want a line with a number for each answer",
		"NaN":   `line 2 of its output is "NaN": want a finite number`,
	} {
		_, err := openCommand(t, act, time.Minute).Score(t.Context(), plain("a", "b", "c"))
		if err == nil || !strings.HasPrefix(err.Error(), "reward command "+os.Args[0]+": "+want) {
			t.Errorf("%s: %v: want %s", act, err, want)
		}
	}
	_, err := openCommand(t, "hang", 50*time.Millisecond).Score(t.Context(), plain("a"))
	const late = "it took longer than 50ms for 1 answers from p.jsonl:1 on, and was ended"
	if err == nil || !strings.HasSuffix(err.Error(), late) {
		t.Errorf("a program that hangs: %v", err)
	}
	_, err = program{name: "no-such-program", timeout: time.Second}.Score(t.Context(), plain("a"))
	if err == nil || err.Error() != "reward command no-such-program: executable file not found in $PATH" {
		t.Errorf("no program: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := openCommand(t, "numbers", time.Minute).Score(ctx, plain("a")); err != context.Canceled {
		t.Errorf("interrupted: %v", err)
	}
}

// openJudge asks a server that replies by a function.
func openJudge(t *testing.T, reply func(prompt string) string) ask.Judge {
	t.Helper()
	server := testkit.StartJudge(t, testkit.JudgeOptions{Reply: reply})
	t.Setenv("OPENAI_API_KEY", "")
	o := Defaults()
	o.Kind, o.Judge.BaseURL, o.Judge.Model = Judge, server.URL, "judge"
	s := expect.Must(Open(o, Caller{Cache: filepath.Join(t.TempDir(), "replies")}))(t)
	t.Cleanup(func() { s.Close() })
	return s
}

func TestJudge(t *testing.T) {
	var asked atomic.Int32
	s := openJudge(t, func(prompt string) string {
		asked.Add(1)
		switch {
		case strings.Contains(prompt, "<<<\nthinks\n>>>"):
			return "<think>Score: 2</think>\nGood.\n**Score: 7.5**\n\n"
		case strings.Contains(prompt, "<<<\nforgets\n>>>") && !strings.Contains(prompt, "Close with one line"):
			return "Good."
		case strings.Contains(prompt, "<<<\nbeyond\n>>>"):
			return "Score: 11"
		case strings.Contains(prompt, "<<<\nnever\n>>>"):
			return "I would say Score: 4 of 5"
		}
		return "Fine.\nScore: 3"
	})
	scores, err := s.Score(t.Context(), plain("thinks", "forgets", "plain", "beyond", "never"))
	want := `[{7.5 } {3 } {3 } {0 the judge's score is 11: want one from 1 to 10} {0 the judge's last line is "I ` +
		`would say Score: 4 of 5": want "Score: " and a number}]`
	if err != nil || verdicts(scores) != want || asked.Load() != 8 {
		t.Errorf("%v after %d questions, %v: want %s", scores, asked.Load(), err, want)
	}
	if _, err := s.Score(t.Context(), plain("thinks", "plain")); err != nil || asked.Load() != 8 {
		t.Errorf("replies are not kept: %d questions, %v", asked.Load(), err)
	}
}

// TestRubrics: a template of the user's, and those that cannot work.
func TestRubrics(t *testing.T) {
	for text, want := range map[string]string{
		"{{.Answer}} to {{.Prompt}} ({{.Lowest}}-{{.Highest}})": "",
		"Rate the answer.": "it has no {{.Answer}}, so that all answers score the same",
		"{{.Answr}}":       "can't evaluate field Answr",
		"{{.Answer":        "unclosed action",
	} {
		path := expect.File(t, "rubric.txt", text)
		_, err := readRubric(path)
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) ||
			!strings.HasPrefix(err.Error(), "reward: judge.rubric")) {
			t.Errorf("%s: %v: want %s", text, err, want)
		}
	}
	if _, err := readRubric("missing.txt"); err == nil || !strings.Contains(err.Error(), "missing.txt") {
		t.Error(err)
	}
	chat := data.Text{Messages: []data.Message{{Role: "user", Content: "a"}, {Role: "assistant", Content: "b"}}}
	if got := transcript(chat); got != "user: a\n\nassistant: b" {
		t.Error(got)
	}
	chat.Messages[1] = calling("b")
	if got := transcript(chat); got != "user: a\n\nassistant: b\n[{\"name\":\"clock\"}]" {
		t.Error(got)
	}
	if got := transcript(data.Text{Messages: []data.Message{calling("")}}); got != `[{"name":"clock"}]` {
		t.Error(got)
	}
}

func TestCheckNamesEveryFault(t *testing.T) {
	for want, change := range map[string]func(*Options){
		`kind "": want command, judge, model, ci, exact or pat`:   func(o *Options) { o.Kind = "" },
		"command []: want a program and its arguments":            func(o *Options) { o.Kind, o.Judge.Model = Command, "" },
		"command [x]: judge scores without a program: remove it":  func(o *Options) { o.Command = []string{"x"} },
		`judge.model "": want the model's name on the server`:     func(o *Options) { o.Judge.Model = "" },
		`judge.base_url "": want the URL of an OpenAI-compatible`: func(o *Options) { o.Judge.BaseURL = "" },
		"judge.range [5 1]: want the lowest and the highest":      func(o *Options) { o.Judge.Range = []float64{5, 1} },
		"judge.max_cost 3: want judge.prompt_price and judge.com": func(o *Options) { o.Judge.MaxCost = 3 },
		`model.folder "": want the folder of a reward model`:      func(o *Options) { o.Kind, o.Judge.Model = Model, "" },
		`model.folder "x": judge scores without a reward model`:   func(o *Options) { o.Model.Folder = "x" },
		`judge.model "m": exact scores without a judge: remove`:   func(o *Options) { o.Kind = Exact },
		`judge.rubric "r": exact scores without a rubric: remo`: func(o *Options) {
			o.Kind, o.Judge.Model, o.Judge.Rubric = Exact, "", "r"
		},
		`column "right": judge scores without a column: remove`: func(o *Options) { o.Column = "right" },
		"model.batch_size 0: want a whole number, 1 or more":    func(o *Options) { o.Model.Batch = 0 },
		"timeout 0s: want a time above 0":                       func(o *Options) { o.Timeout = 0 },
	} {
		o := Defaults()
		o.Kind, o.Judge.Model, o.Judge.BaseURL = Judge, "m", "http://localhost:1/v1"
		if faults := o.Check(); len(faults) > 0 {
			t.Fatal(faults)
		}
		change(&o)
		if faults := o.Check(); len(faults) == 0 || !strings.HasPrefix(faults[0].Error(), want) {
			t.Errorf("%v: want %s", faults, want)
		}
	}
}
