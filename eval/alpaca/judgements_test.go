package alpaca

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/internal/testkit/need"
)

// recorded are options of a run that counts judgements.
func recorded(t *testing.T, baseline, answers, judgements string) Options {
	o := Benchmark.Defaults()
	o.Baseline, o.Agent.Answers, o.Judgments = baseline, answers, judgements
	o.Dir = filepath.Join(t.TempDir(), "run")
	return o
}

// TestReleasedJudgements: a run on the released judgements of a model has the published win rate and standard error. It
// needs no judge.
func TestReleasedJudgements(t *testing.T) {
	dir := need.File(t, "data", "alpaca-eval")
	file := filepath.Join(dir, "annotations", "alpaca-7b.jsonl.gz")
	o := recorded(t, filepath.Join(dir, "baseline.jsonl.gz"), file, file)
	s, _, err := Benchmark.Run(t.Context(), o, nil)
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(s.WinRate-2.59145054) > 1e-6 || math.Abs(s.StandardError-0.48708554) > 1e-6 || s.Total != 805 ||
		s.Judging.Recorded+s.Judging.Equal != 805 || s.Judging.FirstWins != nil || s.Controlled == nil {
		t.Errorf("%+v", s)
	}
	if text := s.String(); !strings.Contains(text, "judge recorded in alpaca-7b.jsonl.gz: ") {
		t.Error(text)
	}
}

// TestOwnDifficulties: a model's own judgements do not count as another's, whatever its file's name, and none count twice.
func TestOwnDifficulties(t *testing.T) {
	dir := need.File(t, "data", "alpaca-eval")
	judged := func(name string) string { return filepath.Join(dir, "annotations", name+".jsonl.gz") }
	answers := filepath.Join(t.TempDir(), "mine.jsonl.gz")
	if err := os.Symlink(judged("alpaca-7b"), answers); err != nil {
		t.Fatal(err)
	}
	o := recorded(t, filepath.Join(dir, "baseline.jsonl.gz"), answers, answers)
	o.Others, o.Weights = []string{judged("claude-2"), judged("alpaca-7b")}, filepath.Join(dir, "lc_weights.csv")
	if s, _, err := Benchmark.Run(t.Context(), o, nil); err != nil || s.Controlled.References != 1 {
		t.Errorf("%+v, %v", s, err)
	}
	o.Others[1], o.Dir = o.Others[0], filepath.Join(t.TempDir(), "run")
	_, _, err := Benchmark.Run(t.Context(), o, nil)
	expect.Error(t, err, `judgements of "claude-2", which `, "has, too: want each model once")
}

// TestJudgementsOfOthers: judgements of other outputs or instructions, and missing ones, are one line.
func TestJudgementsOfOthers(t *testing.T) {
	baseline := expect.File(t, "b.jsonl", `{"instruction":"Q","output_1":"A","generator_1":"b"}`+"\n"+
		`{"instruction":"R","output_1":"B"}`)
	answers := expect.File(t, "m.jsonl", `{"instruction":"Q","output":"x","generator":"m"}`+"\n"+
		`{"instruction":"R","output":"y"}`)
	q := `{"instruction":"Q","output_2":"x","generator_2":"m","preference":0}` + "\n"
	r := `{"instruction":"R","output_2":"y","generator_2":"m","preference":2}` + "\n"
	whole := strings.Replace(q, "0}", `0,"generator_1":"b","output_1":"A "}`, 1)
	o := recorded(t, baseline, answers, expect.File(t, "j.jsonl", whole+r))
	if s, _, err := Benchmark.Run(t.Context(), o, nil); err != nil || s.WinRate != 75 || s.Draws != 1 {
		t.Errorf("%+v, %v", s, err)
	}
	for judgements, want := range map[string]string{
		q: "j.jsonl: 1 of 2 questions have no verdict (first: 2): want one on each",
		q + strings.Replace(r, `"R"`, `"S"`, 1): `b.jsonl does not have the instruction "S": want judgements against this ` +
			"baseline",
		q + strings.Replace(r, `"y"`, `"z"`, 1): "j.jsonl: the verdict on 2 was given to another prompt or answer",
		strings.ReplaceAll(q+r, `"m"`, `"n"`): `j.jsonl:1: generator_2 is "n": want judgements with "m", ` +
			"which this run is of",
		strings.Replace(q, "0}", `0,"generator_1":"c"}`, 1) + r: `j.jsonl:1: generator_1 is "c": want judgements with `,
		strings.Replace(q, "0}", `0,"output_1":"C"}`, 1) + r:    "j.jsonl:1: output_1 is not that of ",
		q + strings.Replace(r, "2}", "3}", 1):                   "preference is 3: want a number from 1",
	} {
		judged := expect.File(t, "j.jsonl", judgements)
		_, _, err := Benchmark.Run(t.Context(), recorded(t, baseline, answers, judged), nil)
		expect.Error(t, err, want)
	}
}
