package mtbench

import (
	"math"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/internal/testkit/need"
)

func TestRating(t *testing.T) {
	for reply, want := range map[string]float64{
		"Rating: [[7]]": 7, "[2] of it is wrong. [[7.5]] [[3]]": 7.5, "Rating: [4]": 4, "[[0]]": 0, "[[10]]": 10,
		"[[11]]": -1, "seven": -1, "": -1, "[[seven]]": -1, "[[-1]]": -1, "7": -1,
	} {
		got, ok := Rating(reply)
		if ok != (want >= 0) || ok && got != want {
			t.Errorf("%q: %v, %v: want %v", reply, got, ok, want)
		}
	}
}

func TestTemperature(t *testing.T) {
	for category, want := range map[string]float64{"writing": 0.7, "math": 0, "stem": 0.1, "gardening": 0.7} {
		if got := Temperature(category); got != want {
			t.Errorf("%s: %v: want %v", category, got, want)
		}
	}
}

// TestAdd: numbers by hand. A reply without a score leaves the mean of the others.
func TestAdd(t *testing.T) {
	s := Result{Model: "m"}
	for i, q := range []struct {
		category string
		scores   [2]float64
	}{{"math", [2]float64{4, 8}}, {"writing", [2]float64{10, -1}}, {"math", [2]float64{6, 6}}} {
		for turn, score := range q.scores {
			if score < 0 {
				s.add(i, q.category, turn+1, nil)
			} else {
				s.add(i, q.category, turn+1, &score)
			}
		}
	}
	for name, pair := range map[string][2]float64{
		"score": {s.Score.Value(), 34. / 5}, "turn 1": {s.Turn1.Value(), 20. / 3}, "turn 2": {s.Turn2.Value(), 7},
		"math": {s.Categories[0].Score.Value(), 6}, "writing": {s.Categories[1].Turn1.Value(), 10},
	} {
		if math.Abs(pair[0]-pair[1]) > 1e-12 {
			t.Errorf("%s: %v: want %v", name, pair[0], pair[1])
		}
	}
	if s.Judged != 5 || s.Missing != 1 || s.Categories[0].Name != "math" {
		t.Errorf("%+v", s)
	}
	for _, part := range []string{"m: 6.800 (95% interval ", "; turn 1 6.667 (95%",
		"\n  math        6.000 (95% interval 6.000 to 6.000)\n  writing     10.000 (of one item: no interval)\n"} {
		if !strings.Contains(s.String(), part) {
			t.Errorf("%s lacks %q", s.String(), part)
		}
	}
}

// TestPrompts: the judge sees what the category and the turn need, and nothing more.
func TestPrompts(t *testing.T) {
	p, err := ReadPrompts("")
	if err != nil {
		t.Fatal(err)
	}
	checkPrompts(t, p)
}

// TestReleasedPrompts: the same holds for the released prompts.
func TestReleasedPrompts(t *testing.T) {
	p, err := ReadPrompts(need.File(t, "data", "mt-bench/judge_prompts.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	checkPrompts(t, p)
}

func checkPrompts(t *testing.T, p *Prompts) {
	t.Helper()
	marks := []string{"«q1»", "«q2»", "«r1»", "«r2»", "«a1»", "«a2»"}
	for _, c := range []struct {
		category string
		turn     int
		shown    string
	}{{"writing", 1, "«q1»«a1»"}, {"math", 1, "«q1»«r1»«a1»"}, {"writing", 2, "«q1»«q2»«a1»«a2»"},
		{"coding", 2, "«q1»«q2»«r1»«r2»«a1»«a2»"}} {
		messages := p.Messages(&Question{Category: c.category, Turns: [2]string{"«q1»", "«q2»"}},
			[2]string{"«r1»", "«r2»"}, [2]string{"«a1»", "«a2»"}, c.turn)
		if len(messages) != 2 || messages[0].Role != "system" || messages[1].Role != "user" {
			t.Fatalf("%+v", messages)
		}
		shown := ""
		for _, mark := range marks {
			if strings.Contains(messages[1].Content, mark) {
				shown += mark
			}
		}
		if shown != c.shown || !strings.Contains(messages[0].Content+messages[1].Content, "[[") {
			t.Errorf("%s, turn %d: %s: want %s", c.category, c.turn, shown, c.shown)
		}
	}
}

func TestPromptFaults(t *testing.T) {
	whole, err := promptFile.ReadFile("prompts.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	text := string(whole)
	cut := strings.LastIndex(strings.TrimSpace(text), "\n") + 1
	for text, want := range map[string]string{
		text[:cut]:    "it has no prompt single-math-v1-multi-turn: want it, of type single; is the file cut short?",
		text[:cut+50]: "p.jsonl:4: bad JSON: the object is not closed",
		strings.Replace(text, "[[rating]]", "[[A]]", 1): `p.jsonl:1: output_format of single-v1 is "[[A]]": want`,
		strings.Replace(text, "{answer}", "", 1): "p.jsonl:1: prompt_template of single-v1: there is no " +
			"{answer} in it",
		strings.Replace(text, "{answer}", "{answer} {n}", 1): "{n} is no field: want {question}, {answer}",
	} {
		path := expect.File(t, "p.jsonl", text)
		if _, err := ReadPrompts(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %s", err, want)
		}
	}
}
