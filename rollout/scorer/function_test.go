package scorer

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/testkit/expect"
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
	s := expect.Must(Open(o, Caller{}))(t)
	t.Cleanup(func() { s.Close() })
	return s
}

func TestExact(t *testing.T) {
	s := openKinds(t, func(o *Options) { o.Kind = Exact })
	for right, texts := range map[any][]string{
		json.Number("42"): {"42", " 42.0\n", "so\n#### 42", "<think>41</think><answer> 42 </answer>"},
		"1,200":           {"1200", "#### 1,200"},
		"6*7=42 #### 42":  {"42"},
		"Paris":           {"Paris", "<answer>Paris</answer>", "#### Paris\n\nIt is the capital."},

		// as lm-evaluation-harness and verl count GSM8K's answers
		"2 * 36 = <<2*36=72>>72\n#### 72": {"#### $72", "#### 72 apples", "#### 72\n\nShe has 72.", "####72.",
			"#### 72.00",
			"#### $ 72.", "so 9\n#### 72\n#### Done", "<answer>#### 72</answer>", "<answer>$72</answer>", "#### +72%",
			"72.",
			"#### 7\n#### 72"},
		"#### 123456789012345678": {"#### 123456789012345678", "123,456,789,012,345,678", "#### 123456789012345678.0"},
		"#### -5":                 {"#### -5", "-$5", "$-5", "#### - 5", "#### −5", "−£5", "#### -5.0 degrees"},
		"0.1":                     {"0.10", ".1", "1e-1"},
		json.Number("1e21"):       {"1000000000000000000000"},
		float64(123456789):        {"#### 123,456,789"},
		"5 apples":                {"5 apples", "#### 5 apples\nand a pear"},
	} {
		scores, err := s.Score(t.Context(), rowed(right, append(texts, "41", "Rome", "", "#### 7 2", "72 apples",
			"#### 72.5", "#### 1 of 72",
			"#### 123456789012345679", "1_00", "0x48", "1_2", "inf", "#### ", "#### 5 pears", "#### $",
			"1e999999999")...))
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
	if wrong, err := s.Score(t.Context(), rowed("100", "1_00", "NaN")); err != nil || verdicts(wrong) != "[{0 } {0 }]" {
		t.Errorf("%+v, %v", wrong, err)
	}
	if err != nil || scores[0].Missing != "p.jsonl:1: the row has no answer, with which the reward exact compares answers" {
		t.Errorf("%+v, %v", scores, err)
	}
}

// TestExactOfLists: each of a list is right; a row without any has no score, and objects are refused.
func TestExactOfLists(t *testing.T) {
	s := openKinds(t, func(o *Options) { o.Kind = Exact })
	right := []any{"Paris", json.Number("3")}
	scores, err := s.Score(t.Context(), append(rowed(right, "Paris", "#### 3.0", "[Paris 3]"), rowed([]any{}, "1")...))
	if err != nil || verdicts(scores[:3]) != "[{1 } {1 } {0 }]" || scores[3].Missing == "" {
		t.Errorf("%+v, %v", scores, err)
	}
	for _, right := range []any{map[string]any{"a": "1"}, []any{"1", map[string]any{}}} {
		_, err := s.Score(t.Context(), rowed(right, "1"))
		expect.Error(t, err, "p.jsonl:1: answer has an object, with which the reward exact cannot compare answers: want")
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

// TestNullIsNotItsOwn: a program's null leaves its reward out of the sum for that answer, as TRL does with None, and
// says so where there is no other.
func TestNullIsNotItsOwn(t *testing.T) {
	t.Setenv("SCORER_TEST_ACT", "null")
	s := openKinds(t, func(o *Options) {
		o.Kind, o.Weights, o.Command, o.FunctionOptions.Pattern = "command,pattern", []float64{2, 3},
			[]string{os.Args[0]}, "^b+$"
	})
	scores, err := ask.Judged(t.Context(), s, plain("bb", "a"))
	if err != nil || verdicts(scores) != "[{3 } {2 }]" || fmt.Sprint(scores[0].Without,
		scores[1].Without) != "[0] []" ||
		!scores[0].Skips(0) || scores[0].Skips(1) || len(scores[0].Parts) != 1 || len(scores[1].Parts) != 2 {
		t.Errorf("%+v, %v", scores, err)
	}
	alone := openKinds(t, func(o *Options) { o.Kind, o.Command = Command, []string{os.Args[0]} })
	scores, err = ask.Judged(t.Context(), alone, plain("bb", "a", "object"))
	if err != nil || scores[2].Missing != ask.NotItsOwn || scores[0].Missing != ask.NotItsOwn ||
		verdicts(scores[1:2]) != "[{1 }]" {
		t.Errorf("%+v, %v", scores, err)
	}
	both := openKinds(t, func(o *Options) {
		o.Kind, o.Weights, o.Command = Command, []float64{2},
			[]string{os.Args[0]}
	})
	if scores, err = ask.Judged(t.Context(), both, plain("bb")); err != nil || scores[0].Missing != ask.NotItsOwn {
		t.Errorf("%+v, %v", scores, err)
	}
}

// calling is a message that calls a tool.
func calling(content string) data.Message {
	return data.Message{Role: "assistant", Content: content,
		Whole: `{"role":"assistant","tool_calls":[{"name":"clock"}],"content":null}`}
}

// TestCallsReachThePrograms: messages come whole, with a text as content.
func TestCallsReachThePrograms(t *testing.T) {
	answers := plain("")
	answers[0].Said.Messages = []data.Message{calling(""), {Role: "user", Content: "<b>"}}
	got, err := lines(answers)
	const want = `{"prompt":"Q","response":[{"role":"assistant","content":"","tool_calls":[{"name":"clock"}]},` +
		`{"role":"user","content":"<b>"}]}` + "\n"
	if string(got) != want || err != nil {
		t.Errorf("%s, %v, want %s", got, err, want)
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
