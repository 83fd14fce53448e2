package scorer

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/ask"
)

// rowed are answers to a prompt whose row has a right answer.
func rowed(right any, texts ...string) []ask.Answer {
	answers := plain(texts...)
	for i := range answers {
		answers[i].To.Row = map[string]any{"answer": right}
	}
	return answers
}

func openKinds(t *testing.T, change func(o *Options)) ask.Judge {
	t.Helper()
	o := Defaults()
	change(&o)
	s, err := Open(o, Caller{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestExact(t *testing.T) {
	s := openKinds(t, func(o *Options) { o.Kind = Exact })
	for right, texts := range map[any][]string{
		json.Number("42"): {"42", " 42.0\n", "so\n#### 42", "<think>41</think><answer> 42 </answer>"},
		"1,200":           {"1200", "#### 1,200"},
		"6*7=42 #### 42":  {"42"},
		"Paris":           {"Paris", "<answer>Paris</answer>"},
	} {
		scores, err := s.Score(t.Context(), rowed(right, append(texts, "41", "Rome", "")...))
		for i, score := range scores {
			want := 0.0
			if i < len(texts) {
				want = 1
			}
			if err != nil || score.Value != want || score.Missing != "" {
				t.Errorf("%v: answer %d has %+v, want %v; %v", right, i, score, want, err)
			}
		}
	}
	scores, err := s.Score(t.Context(), plain("1"))
	if err != nil || scores[0].Missing != "p.jsonl:1: the row has no answer, with which the reward exact compares answers" {
		t.Errorf("%+v, %v", scores, err)
	}
}

// TestSeveral: a program and two functions with weights; where one has no score, the sum has none.
func TestSeveral(t *testing.T) {
	t.Setenv("SCORER_TEST_ACT", "numbers")
	s := openKinds(t, func(o *Options) {
		o.Kind, o.Weights = "command, exact,pattern", []float64{0.5, 10, -1}
		o.Command, o.FunctionOptions.Pattern = []string{os.Args[0]}, "^b+$"
	})
	answers := append(rowed("bb", "bb", "a"), plain("c")...)
	scores, err := ask.Judged(t.Context(), s, answers)
	if err != nil || verdicts(scores[:2]) != "[{10 } {0.5 }]" || scores[2].Missing == "" ||
		fmt.Sprint(scores[0].Each, scores[1].Each) != "[2 1 1] [1 0 0]" {
		t.Errorf("%+v, %v", scores, err)
	}
	if s.Batch() != 4096 {
		t.Error(s.Batch())
	}
}

// TestRowsReachThePrograms: beside prompt and response, where a row has other columns.
func TestRowsReachThePrograms(t *testing.T) {
	text, err := lines(append(rowed(json.Number("7"), "x"), plain("")...))
	got := string(text)
	if want := `{"prompt":"Q","response":"x","row":{"answer":7}}` + "\n" + `{"prompt":"Q","response":""}` + "\n"; got != want || err != nil {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
	const says = "p.jsonl:1: a column cannot be written for a reward program: json: unsupported value: NaN"
	if _, err := lines(rowed(math.NaN(), "x")); err == nil || err.Error() != says {
		t.Error(err)
	}
}

func TestKindsAreChecked(t *testing.T) {
	for want, change := range map[string]func(*Options){
		`kind "exact,luck": want command, judge, model, ci, exact or pattern`: func(o *Options) { o.Kind = "exact,luck" },
		`kind "exact,exact": exact is there twice`:                            func(o *Options) { o.Kind = "exact,exact" },
		"weights [1]: kind exact,ci: want 2, one for each":                    func(o *Options) { o.Kind, o.Weights = "exact,ci", []float64{1} },
		`pattern "": want a regular expression`:                               func(o *Options) { o.Kind = Pattern },
		`pattern "(": missing closing )`:                                      func(o *Options) { o.Kind, o.FunctionOptions.Pattern = Pattern, "(" },
		`pattern "x": exact scores without a pattern: remove it`:              func(o *Options) { o.FunctionOptions.Pattern = "x" },
	} {
		o := Defaults()
		o.Kind = Exact
		change(&o)
		if faults := o.Check(); len(faults) != 1 || !strings.HasPrefix(faults[0].Error(), want) {
			t.Errorf("%v: want %s", faults, want)
		}
	}
}
