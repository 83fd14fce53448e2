package mtbench

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// judgedRows are rows of a model's scores in both turns of questions 81, 82, ….
func judgedRows(model string, scores ...[2]float64) string {
	var b strings.Builder
	for i, s := range scores {
		for turn, score := range s {
			fmt.Fprintf(&b, `{"question_id":%d,"model":%q,"turn":%d,"score":%v}`+"\n", 81+i, model, turn+1, score)
		}
	}
	return b.String()
}

func asked(categories ...string) string {
	var b strings.Builder
	for i, category := range categories {
		fmt.Fprintf(&b, `{"question_id":%d,"category":%q,"turns":["One?","Two?"]}`+"\n", 81+i, category)
	}
	return b.String()
}

func TestCountFile(t *testing.T) {
	o := Defaults()
	o.Judgements = write(t, "judged.jsonl", judgedRows("m", [2]float64{4, 8}, [2]float64{6, -1})+
		judgedRows("better", [2]float64{9, 9}, [2]float64{9, 9}))
	o.Questions = write(t, "q.jsonl", asked("math", "writing"))
	out := filepath.Join(filepath.Dir(o.Judgements), "counted")
	o.Dir = out
	result, _, err := Benchmark.Run(t.Context(), o, nil)
	if err != nil {
		t.Fatal(err)
	}
	const better = "better: 9.000 (95% interval 9.000 to 9.000); turn 1 9.000 (95% interval 9.000 to 9.000); turn 2 " +
		"9.000 (95% interval 9.000 to 9.000)\n  math        9.000 (of one item: no interval)\n" +
		"  writing     9.000 (of one item: no interval)\nm: 6.000 (95% interval 6.000 to 6.000); turn 1 5.000 (95% " +
		"interval 4.000 to 6.000); turn 2 8.000 (of one item: no interval)\n"
	got := result.String()
	if !strings.HasPrefix(got, better) || !strings.Contains(got, "1 of 4 judgements have no score") ||
		!strings.Contains(got, "Qwen2.5-7B-Instruct: untrained 8.61, DPO 8.56, DPO + MaPPO 8.79, ") {
		t.Error(got)
	}
	b, err := os.ReadFile(filepath.Join(out, "config.yaml"))
	if want := "command: eval mt-bench\nquestions: "; err != nil || !strings.HasPrefix(string(b), want) ||
		strings.Contains(string(b), "agent") {
		t.Errorf("%s, %v", b, err)
	}
	b, err = os.ReadFile(filepath.Join(out, "summary.json"))
	if err != nil || !strings.Contains(string(b), `"missing": 1`) || !strings.Contains(string(b), `"value": 6`) {
		t.Errorf("%s, %v", b, err)
	}
}

func TestCountFaults(t *testing.T) {
	both := judgedRows("m", [2]float64{4, 8})
	for _, c := range []struct{ judged, questions, want string }{
		{both, asked("math", "math"), "question 82 of "},
		{both + strings.ReplaceAll(both, "81", "82"), asked("math"), "judged.jsonl:3: question 82 is not among the"},
		{judgedRows("m", [2]float64{-1, -1}), "", "judged.jsonl: no judgement of m has a score"},
		{both[:len(both)/2], "", "m has no judgement of turn 2 of question 81: want both turns"},
		{both[:len(both)-20], "", "judged.jsonl:2: bad JSON: the object is not closed"},
		{both, asked("math")[:20], "q.jsonl:1: bad JSON"},
	} {
		o := Defaults()
		o.Judgements = write(t, "judged.jsonl", c.judged)
		if c.questions != "" {
			o.Questions = write(t, "q.jsonl", c.questions)
		}
		if _, _, err := Benchmark.Run(t.Context(), o, nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s, %s: %v: want %s", c.judged, c.questions, err, c.want)
		}
	}
}
