package alpaca

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// writeJudged writes judgements of a model on n instructions, and a baseline of n.
func writeJudged(t *testing.T, model string, judged, n int) (annotations, baseline string) {
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

// counted counts with the default options of what is not counting.
func counted(o Options) (*Result, error) {
	d := Defaults()
	d.Judgements, d.Dir = o.Judgements, o.Dir
	o.Judged = d.Judged
	result, _, err := Benchmark.Run(context.Background(), o, nil)
	return result, err
}

// judgements are options with a file of judgements.
func judgements(path, out string, o Options) Options {
	o.Judgements, o.Dir = path, out
	return o
}

func TestCountFile(t *testing.T) {
	annotations, baseline := writeJudged(t, "m", 20, 20)
	other, _ := writeJudged(t, "other", 20, 20)
	dir := filepath.Dir(annotations)
	out := filepath.Join(dir, "counted")
	result, err := counted(judgements(annotations, out, Options{Baseline: baseline,
		Others: []string{annotations, other}, Weights: filepath.Join(dir, "weights.csv"),
		Leaderboard: filepath.Join(dir, "leaderboard.csv")}))
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

func TestCountFaults(t *testing.T) {
	annotations, baseline := writeJudged(t, "m", 20, 20)
	short, long := writeJudged(t, "m", 15, 20)
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
		{Options{}, "or judgments, a file of judgements to count"},
		{judgements(annotations, "", Options{Others: []string{annotations}}), "want weights as well"},
		{judgements(annotations, "", Options{Weights: "w.csv"}), "weights w.csv: want others as well"},
		{judgements("no.json", "", Options{}), "no.json: no such file"},
		{judgements(short, "", Options{Baseline: long}),
			"15 judgements for the 20 instructions of " + long + ": the file is cut short"},
		{judgements(annotations, "", Options{Baseline: foreign}),
			"generator_1 is base, and the baseline of " + foreign + " is gpt4: want judgements against it"},
		{judgements(annotations, "", Options{Baseline: baseline, Others: []string{annotations}, Weights: none}),
			none + ` has no weights of "m"`},
		{judgements(annotations, "", Options{Leaderboard: bad}), bad + ": it has no column"},
	} {
		if _, err := counted(c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v: want %s", c.o, err, c.want)
		}
	}
}
