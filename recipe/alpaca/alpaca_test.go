package alpaca

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/run"
)

// write writes judgements of a model on n instructions, and a baseline of n.
func write(t *testing.T, model string, judged, n int) (annotations, baseline string) {
	t.Helper()
	var a, b strings.Builder
	for i := range n {
		if i < judged {
			fmt.Fprintf(&a,
				`{"instruction":"Q%d","output_2":"%s","generator_1":"base","generator_2":"%s","preference":%v}`+"\n",
				i, strings.Repeat("x", i), model, 1+float64(i%5)/4)
		}
		fmt.Fprintf(&b, `{"instruction":"Q%d","output_1":"%s","generator_1":"base"}`+"\n", i, strings.Repeat("y", 20-i))
	}
	dir := t.TempDir()
	annotations, baseline = filepath.Join(dir, "a.jsonl"), filepath.Join(dir, "b.jsonl")
	for path, text := range map[string]string{annotations: a.String(), baseline: b.String(),
		filepath.Join(dir, "weights.csv"):     ",length,difficulty,model\nm,-1.5,1,0\nother,-1.4,0.9,-1\n",
		filepath.Join(dir, "leaderboard.csv"): ",win_rate,standard_error,length_controlled_winrate\nm,51,8,52\n"} {
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return annotations, baseline
}

// count counts with the default options of what is not counting.
func count(o Options, r run.Reporter) (*Result, error) {
	o.BenchOptions = Defaults().BenchOptions
	return Count(o, r)
}

func TestRun(t *testing.T) {
	annotations, baseline := write(t, "m", 20, 20)
	other, _ := write(t, "other", 20, 20)
	dir := filepath.Dir(annotations)
	out := filepath.Join(dir, "counted")
	result, err := count(Options{Annotations: annotations, Baseline: baseline,
		Others: []string{annotations, other}, Weights: filepath.Join(dir, "weights.csv"),
		Leaderboard: filepath.Join(dir, "leaderboard.csv"), Out: out}, nil)
	if err != nil {
		t.Fatal(err)
	}
	text := result.String()
	for _, want := range []string{"m: win rate 50.00 % ± 8.11 (8 wins, 4 draws, 8 losses), outputs of 9 characters\n",
		"with difficulties from 1 other models\n", "published: win rate 51.00 % ± 8.00, length-controlled 52.00 %\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%s: want %s", text, want)
		}
	}
	var summary map[string]any
	b, err := os.ReadFile(filepath.Join(out, "summary.json"))
	if err == nil {
		err = json.Unmarshal(b, &summary)
	}
	if err != nil || summary["win_rate"] != 50.0 || summary["n_total"] != 20.0 || summary["baseline"] != "base" {
		t.Errorf("%v, %v", summary, err)
	}
}

func TestFaults(t *testing.T) {
	annotations, baseline := write(t, "m", 20, 20)
	short, long := write(t, "m", 15, 20)
	dir := filepath.Dir(annotations)
	foreign := filepath.Join(dir, "foreign.jsonl")
	text, _ := os.ReadFile(baseline)
	if err := os.WriteFile(foreign, []byte(strings.ReplaceAll(string(text), `"base"`, `"gpt4"`)), 0o666); err != nil {
		t.Fatal(err)
	}
	none := filepath.Join(dir, "none.csv")
	if err := os.WriteFile(none, []byte(",length,difficulty,model\nz,1,1,1\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(dir, "bad.csv")
	if err := os.WriteFile(bad, []byte("name,rate\nm,1\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{}, "annotations is missing"},
		{Options{Annotations: annotations, Others: []string{annotations}}, "want weights as well"},
		{Options{Annotations: annotations, Weights: "w.csv"}, "weights w.csv: want others as well"},
		{Options{Annotations: "no.json"}, "no.json: no such file"},
		{Options{Annotations: short, Baseline: long},
			"15 judgements for the 20 instructions of " + long + ": the file is cut short"},
		{Options{Annotations: annotations, Baseline: foreign},
			"generator_1 is base, and the baseline of " + foreign + " is gpt4: want judgements against it"},
		{Options{Annotations: annotations, Baseline: baseline, Others: []string{annotations}, Weights: none},
			none + ` has no weights of "m"`},
		{Options{Annotations: annotations, Leaderboard: bad}, bad + ": it has no column"},
	} {
		if _, err := count(c.o, nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v: want %s", c.o, err, c.want)
		}
	}
}
