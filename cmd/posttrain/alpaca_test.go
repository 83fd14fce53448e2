package main

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit"
)

// alpacaSummary is what the tests read of summary.json.
type alpacaSummary struct {
	Generator  string
	WinRate    float64 `json:"win_rate"`
	Total      int     `json:"n_total"`
	Draws      int     `json:"n_draws"`
	Controlled *struct {
		WinRate float64 `json:"length_controlled_winrate"`
	} `json:"length_controlled"`
	Judging struct {
		Probabilities int     `json:"by_probability"`
		Words         int     `json:"by_words"`
		Equal         int     `json:"equal_outputs"`
		Unparsed      int     `json:"no_verdict"`
		ModelFirst    int     `json:"model_first"`
		FirstWins     float64 `json:"first_wins"`
		Warnings      []string
	}
}

func readAlpaca(t *testing.T, dir string) (s alpacaSummary) {
	t.Helper()
	if err := json.Unmarshal([]byte(read(t, dir+"/summary.json")), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// likesNumbers finds the output of the model ("It is …") better, with a probability of 0.8, wherever it is; its prompt
// shows the first output before the second.
func likesNumbers(prompt string) map[string]float64 {
	p := 0.8
	if strings.Index(prompt, "It is ") < strings.Index(prompt, " is a number.") {
		p = 0.2
	}
	return map[string]float64{"m": math.Log(1 - p), "M": math.Log(p), "The": math.Log(1e-6)}
}

// TestAlpacaPreferences: preferences come from probabilities, whichever output the judge sees first. Of a judge that likes what it sees first this is said.
func TestAlpacaPreferences(t *testing.T) {
	b := benches[0]
	workBench(t, b, 20)
	s := testkit.StartJudge(t, testkit.JudgeOptions{Reply: func(string) string { return "m" }, Top: likesNumbers})
	o := must(t, b.judged("run", s.URL, b.recorded...)...)
	got := readAlpaca(t, "run")
	j := got.Judging
	if math.Abs(got.WinRate-80) > 1e-9 || got.Total != 20 || j.Probabilities != 20 || j.Words != 0 ||
		j.ModelFirst < 3 || j.ModelFirst > 17 || got.Generator != "outputs" || got.Controlled == nil {
		t.Errorf("%+v", got)
	}
	for _, want := range []string{"outputs: win rate 80.00 %", "20 preferences by probability, 0 by words",
		"published (arXiv:2507.21183v5, table 3, length-controlled", "gpt4_1106_preview         50.00 ± 0.00  50.00"} {
		if !strings.Contains(o.out, want) {
			t.Errorf("%q lacks %q", o.out, want)
		}
	}
	biased := testkit.StartJudge(t, testkit.JudgeOptions{Reply: func(string) string { return "m" }})
	must(t, b.judged("biased", biased.URL, b.recorded...)...)
	got = readAlpaca(t, "biased")
	if j := got.Judging; j.FirstWins != 100 || j.Words != 20 || j.Probabilities != 0 ||
		math.Abs(got.WinRate-100*float64(j.ModelFirst)/20) > 1e-9 {
		t.Errorf("%+v", got)
	}
}

// TestAlpacaDraws: an output that equals the baseline's is a draw that nobody is asked about, and a reply without a
// verdict does not count; both are said.
func TestAlpacaDraws(t *testing.T) {
	b := benches[0]
	workBench(t, b, 6)
	write(t, "outputs.json", strings.Replace(read(t, "outputs.json"), "It is 0", "9 is a number.", 1))
	s := testkit.StartJudge(t, testkit.JudgeOptions{Reply: func(prompt string) string {
		if strings.Contains(prompt, "It is 5") {
			return "Neither."
		}
		return "M"
	}})
	o := must(t, b.judged("run", s.URL, b.recorded...)...)
	got := readAlpaca(t, "run")
	if j := got.Judging; j.Equal != 1 || j.Unparsed != 1 || j.Words != 4 || got.Total != 5 || got.Draws != 1 {
		t.Errorf("%+v", got)
	}
	if all, _ := s.Requests(); all != 5 ||
		!strings.Contains(o.out, "1 equal outputs (1.5), 1 without a verdict (not counted)") ||
		!strings.Contains(o.out, "warning: 1 of 5 replies of the judge have no verdict") {
		t.Errorf("%d requests\n%s", all, o.out)
	}
}

func TestAlpacaFaults(t *testing.T) {
	b := benches[0]
	run := func(more ...string) []string { return b.judged("run", "http://127.0.0.1:1/v1", more...) }
	recorded := func(more ...string) []string { return run(append(b.recorded, more...)...) }
	for _, c := range []faultCase{
		{"nothing", nil, []string{"eval", "alpaca", "--baseline", "baseline.jsonl", "--judge-model", "any"}, 2,
			[]string{"--model", "agent.model is missing", "agent.answers"}, nil},
		{"no baseline", nil, []string{"eval", "alpaca", "--answers", "outputs.json", "--judge-model", "any"}, 2,
			[]string{"--baseline", "baseline is missing", "output_1"}, nil},
		{"no judge", nil, []string{"eval", "alpaca", "--baseline", "baseline.jsonl", "--answers", "outputs.json"}, 2,
			[]string{"--judge-model", "judge.model is missing"}, nil},
		{"no key", nil, []string{"eval", "alpaca", "--baseline", "baseline.jsonl", "--answers", "outputs.json",
			"--judge-model", "gpt-4o"}, 1, []string{"no key for the judge", "OPENAI_API_KEY", "--judge-api-key-env"}, nil},
		{"two models", nil, recorded("--model", "embedded"), 2,
			[]string{"--answers", "agent.model names an agent already"}, nil},
		{"temperature of recorded outputs", nil, recorded("--temperature", "1"), 2,
			[]string{"--temperature", "no effect with agent.answers"}, nil},
		{"cut baseline", cutAt("baseline.jsonl", `,"output_1":"99 is`), recorded(), 1,
			[]string{"baseline.jsonl:2", "the object is not closed"}, nil},
		{"empty baseline", withFile("baseline.jsonl", ""), recorded(), 1, []string{"baseline.jsonl", "no rows"}, nil},
		{"baseline without outputs", withFile("baseline.jsonl", `{"instruction":"a","text":"b"}`), recorded(), 1,
			[]string{"baseline.jsonl:1", "instruction or output_1 is missing"}, nil},
		{"an instruction twice", withFile("baseline.jsonl", strings.Repeat(
			`{"instruction":"a","output_1":"b"}`+"\n", 2)), recorded(), 1,
			[]string{"baseline.jsonl:2", `the instruction "a" is at baseline.jsonl:1 already`}, nil},
		{"outputs cut short", edit("outputs.json", "about 2.", "about two."), recorded(), 1,
			[]string{"outputs.json", "1 of 4 questions have no answer", "first: 3"}, nil},
		{"prompts without a field", withFile("p.jsonl", `{"role":"user","content":"{instruction} {output_1}"}`),
			recorded("--prompts", "p.jsonl"), 1, []string{"p.jsonl", "{output_2}"}, nil},
		{"judge that is not there", nil, recorded("--set", "judge.retries=0"), 1,
			[]string{"judge", "127.0.0.1:1"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			workBench(t, b, 4)
			if c.make != nil {
				c.make(t)
			}
			checkRefusal(t, cli(t, c.args...), c)
		})
	}
}

// TestAlpacaOtherAnswers: verdicts on other answers or of another baseline are refused, and no half of them counts.
func TestAlpacaOtherAnswers(t *testing.T) {
	b := benches[0]
	workBench(t, b, 4)
	s := testkit.StartJudge(t, testkit.JudgeOptions{Reply: b.reply})
	must(t, b.judged("run", s.URL, b.recorded...)...)
	report := []string{"eval", "alpaca", "--stage", "report", "--out", "run"}
	answers := read(t, "run/answers.jsonl")
	write(t, "run/answers.jsonl", strings.Replace(answers, "It is 2", "It was 2", 1))
	checkRefusal(t, cli(t, report...), faultCase{code: 1,
		says: []string{"run/verdicts.jsonl", "the verdict on 3 was given to another prompt or answer"}})
	write(t, "run/answers.jsonl", answers)
	edit("baseline.jsonl", "999 is a number.", "999 was a number.")(t)
	checkRefusal(t, cli(t, report...), faultCase{code: 1,
		says: []string{"the verdict on 3", "another prompt or answer"}})
	edit("baseline.jsonl", "about 2.", "about two.")(t)
	checkRefusal(t, cli(t, report...), faultCase{code: 1, says: []string{"outputs.json: 1 of 4 questions have no answer"}})
}
