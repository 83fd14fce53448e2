package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/losses"
)

// writeRun writes the metrics of a run of two steps, whose log-probs change by these amounts.
func writeRun(t *testing.T, folder string, chosen, rejected, accuracy float64) {
	t.Helper()
	if err := os.MkdirAll(folder, 0o777); err != nil {
		t.Fatal(err)
	}
	var lines strings.Builder
	for step := range 3 {
		part := float64(step) / 2
		fmt.Fprintf(&lines, `{"step":%d,"epoch":0,"eval_logps/chosen":%v,"eval_logps/rejected":%v,`+
			`"eval_rewards/accuracies":%v}`+"\n", step, -10+part*chosen, -20+part*rejected, accuracy)
		fmt.Fprintf(&lines, `{"step":%d,"epoch":0,"loss":0.5}`+"\n", step)
	}
	if err := os.WriteFile(filepath.Join(folder, "metrics.jsonl"), []byte(lines.String()), 0o666); err != nil {
		t.Fatal(err)
	}
}

// The table has the mean change of the seeds with Student's interval, and pairs the runs of a seed for the difference.
func TestPriorTable(t *testing.T) {
	o := priorOptions{out: t.TempDir(), losses: []string{losses.DPO}, seeds: 2, steps: 2, held: 10}
	o.picture = filepath.Join(o.out, "curves.png")
	writeRun(t, o.folder(losses.DPO, losses.None, 1), -1, -4, 0.5)
	writeRun(t, o.folder(losses.DPO, losses.None, 2), -3, -4, 0.7)
	writeRun(t, o.folder(losses.DPO, losses.MaPPO, 1), 1, -1, 0.6)
	writeRun(t, o.folder(losses.DPO, losses.MaPPO, 2), -1, -2, 0.6)
	var out strings.Builder
	if err := o.report(&out); err != nil {
		t.Fatal(err)
	}
	// with two values Student's t is 12.706, and half the interval 12.706 times half their distance
	for _, want := range []string{
		"| dpo | none | -2.00 ± 12.71 | -4.00 ± 0.00 | +2.00 ± 12.71 | 60.00 ± 127.06 |\n",
		"| dpo | mappo | +0.00 ± 12.71 | -1.50 ± 6.35 | +1.50 ± 6.35 | 60.00 ± 0.00 |\n",
		"| | difference | +2.00 ± 0.00 | +2.50 ± 6.35 | -0.50 ± 6.35 | |\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table has no %q:\n%s", want, out.String())
		}
	}
	if info, err := os.Stat(o.picture); err != nil || info.Size() == 0 {
		t.Errorf("the picture: %v", err)
	}
}

// A run that was cut short is not taken for a whole one.
func TestPriorCutShort(t *testing.T) {
	o := priorOptions{out: t.TempDir(), steps: 3}
	folder := o.folder(losses.DPO, losses.None, 1)
	writeRun(t, folder, 1, 1, 0.5)
	if _, err := o.curve(folder); err == nil || !strings.Contains(err.Error(), "after step 3") {
		t.Errorf("error %v, want one about step 3", err)
	}
	o.steps = 2
	if records, err := o.curve(folder); err != nil || len(records) != 3 {
		t.Errorf("%d evaluations, %v; want 3", len(records), err)
	}
}

// A seed draws its own pairs, the same ones each time.
func TestPriorDraw(t *testing.T) {
	o := priorOptions{out: t.TempDir(), steps: 2, size: 3, held: 4}
	var pairs []data.Preference
	for i := range 20 {
		text := func(s string) data.Text { return data.Text{Plain: fmt.Sprint(s, i)} }
		pairs = append(pairs, data.Preference{Prompt: text("q"), Chosen: text("a"), Rejected: text("b"),
			ChosenScore: 1, Scored: true})
	}
	o.data = filepath.Join(o.out, "all.jsonl")
	if err := data.WritePreferences(o.data, pairs); err != nil {
		t.Fatal(err)
	}
	var drawn [][]byte
	for _, seed := range []int{1, 1, 2} {
		path, n, err := o.draw(seed)
		if err != nil || n != 10 {
			t.Fatalf("%d pairs, %v; want 10", n, err)
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		drawn = append(drawn, raw)
	}
	if !slices.Equal(drawn[0], drawn[1]) || slices.Equal(drawn[0], drawn[2]) {
		t.Error("want the same pairs of a seed, and others of another")
	}
	o.held = 15
	if _, _, err := o.draw(1); err == nil || !strings.Contains(err.Error(), "20 pairs, want 21") {
		t.Errorf("error %v, want one about 21 pairs", err)
	}
}

// Options of rewards are for runs with the prior.
func TestPriorSettings(t *testing.T) {
	o := priorOptions{set: []string{"data.reward_transform=rank", "lora.rank=16"}}
	if got := o.settings(losses.None); !slices.Equal(got, []string{"lora.rank=16"}) {
		t.Errorf("without the prior: %v", got)
	}
	if got := o.settings(losses.MaPPO); len(got) != 2 {
		t.Errorf("with the prior: %v", got)
	}
	if got := spread([]float64{math.Pi}); got != "+3.14" {
		t.Errorf("one value: %q, want no interval", got)
	}
}
