package arena

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const judgedLine = `{"question_id":"q1","model":"m","judge":"j","games":[{"score":"A<B"},{"score":"A>>B"}]}` + "\n"

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "judged.jsonl")
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCountFile(t *testing.T) {
	path := write(t, judgedLine+`{"question_id":"q2","model":"m","games":[{"score":"A>B"},{"score":null}]}`)
	o := Defaults()
	o.Judgements, o.Rounds, o.Dir = path, 100, filepath.Join(filepath.Dir(path), "counted")
	result, _, err := Benchmark.Run(t.Context(), o, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := "m: score 80.0 % (0.0 to 100.0), 3 games against the baseline, which has 50 %\n" +
		"verdicts, the model being A: A>>B 1, A>B 1, A=B 0, B>A 1, B>>A 0\n1 games have no verdict\n" +
		"published (arXiv:2507.21183) of Qwen2.5-7B-Instruct: untrained 42.9, DPO 45.5, DPO + MaPPO 59.2, SimPO " +
		"64.2, SimPO + MaPPO 69.5, IPO 53, IPO + MaPPO 64.4, CPO 47.6, CPO + MaPPO 54.1\n"
	if result.String() != want {
		t.Errorf("%s: want %s", result, want)
	}
	if b, err := os.ReadFile(filepath.Join(o.Dir, "summary.json")); err != nil || !strings.Contains(string(b),
		`"score": 80`) {
		t.Errorf("%s, %v", b, err)
	}
}

func TestCountFaults(t *testing.T) {
	for text, want := range map[string]string{
		"":                      "no rows: the file is empty",
		judgedLine + judgedLine: "judged.jsonl:2: question q1 is at ",
		judgedLine + strings.NewReplacer("q1", "q2", `"m"`, `"n"`).Replace(judgedLine): `model is "n", in the first row "m"`,
		strings.Replace(judgedLine, "A<B", "B wins",
			1): `games[0].score is "B wins": want A>>B, A>B, A=B, B>A, B>>A`,
		strings.Replace(judgedLine, `,{"score":"A>>B"}`, "",
			1): "want question_id or uid, a text, and games, a list of two",
		judgedLine[:40]: "judged.jsonl:1",
		`{"question_id":"q1","model":"m","games":[{},{}]}`: "no game has a verdict",
	} {
		o := Defaults()
		o.Judgements = write(t, text)
		if _, _, err := Benchmark.Run(t.Context(), o, nil); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v: want %s", text, err, want)
		}
	}
}
