package run

import (
	"math"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// rlRecords look like a run that learns from rewards: the reward rises from below 0, the entropy sinks, every tenth step is
// validated.
func rlRecords(n int) []Record {
	records := []Record{{Values: map[string]float64{"eval_reward": -0.2, "eval_complete": 0.1}}}
	for i := range n {
		x := float64(i)
		records = append(records, Record{Step: i + 1, Values: map[string]float64{
			"reward": -0.2 + x/100 + math.Sin(x)/20, "complete": 0.1 + x/200, "entropy": math.Exp(-x / 40), "kl": x * x / 1e5,
			"completions/mean_length": 60 + x/10, "loss": 1e-9, "reward_std": 0.4,
		}})
		if (i+1)%10 == 0 {
			records = append(records, Record{Step: i + 1, Values: map[string]float64{"eval_reward": -0.2 + x/90, "eval_complete": 0.1 + x/180}})
		}
	}
	return records
}

// TestPanelsOfRL: the reward comes first, and what was not measured leaves no panel.
func TestPanelsOfRL(t *testing.T) {
	names := func(records []Record) (all [][]string) {
		for _, p := range PanelsOf(records) {
			var lines []string
			for _, l := range p.Lines {
				lines = append(lines, l.Name)
			}
			all = append(all, lines)
		}
		return all
	}
	want := [][]string{{"reward", "eval_reward", "complete", "eval_complete"}, {"entropy", "kl"}, {"completions/mean_length"}}
	if got := names(rlRecords(20)); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	only := []Record{{Step: 0, Values: map[string]float64{"eval_reward": -1}}}
	if got, want := names(only), [][]string{{"eval_reward"}}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if l := PanelsOf(rlRecords(20))[0].Lines[1]; !l.Dashed || !reflect.DeepEqual(l.X, []float64{0, 10, 20}) {
		t.Errorf("%+v, want what was held out dashed, from step 0 on", l)
	}
}

// TestCurvesOfRL draws a run of rewards and finds every line's colour in its own third of the picture.
func TestCurvesOfRL(t *testing.T) {
	path := filepath.Join(t.TempDir(), "curves.png")
	if dir := os.Getenv("POSTTRAIN_KEEP_CURVES"); dir != "" {
		path = filepath.Join(dir, "curves-rl.png")
	}
	if err := Curves(path, "CI-RL (posttrain ci-rl)", PanelsOf(rlRecords(60))); err != nil {
		t.Fatal(err)
	}
	img := readPNG(t, path)
	const stray = 100
	for name, third := range map[string]int{"reward": 0, "complete": 0, "entropy": 1, "kl": 1, "completions/mean_length": 2} {
		for k := range 3 {
			n := count(img, colors[name], k*curvesHeight/3, (k+1)*curvesHeight/3)
			if k == third && n < 300 || k != third && n > stray {
				t.Errorf("%s: %d pixels in the third %d", name, n, k)
			}
		}
	}
}

// TestCurvesOfOddRLRuns: rewards that never move, that are all -1, that are no numbers.
func TestCurvesOfOddRLRuns(t *testing.T) {
	for name, records := range map[string][]Record{
		"one validation": {{Step: 0, Values: map[string]float64{"eval_reward": -1, "eval_complete": 0}}},
		"all -1":         {{Step: 1, Values: map[string]float64{"reward": -1, "kl": 0}}, {Step: 2, Values: map[string]float64{"reward": -1, "kl": 0}}},
		"NaN":            {{Step: 1, Values: map[string]float64{"reward": math.NaN(), "entropy": math.Inf(1)}}},
	} {
		path := filepath.Join(t.TempDir(), "curves.png")
		if err := Curves(path, name, PanelsOf(records)); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		readPNG(t, path)
	}
}
