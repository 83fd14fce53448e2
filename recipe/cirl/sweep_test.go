package cirl

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// TestSweepTable: what finished runs came to, by hand: two steps of 0.5 seconds are 1.
func TestSweepTable(t *testing.T) {
	points, err := gridOf([]string{"seed=1, 2", "reward.restricted_weight=0.5"})
	if err != nil {
		t.Fatal(err)
	}
	out, err := run.Create(filepath.Join(t.TempDir(), "s"), "test")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	var rows []sweepRow
	for _, p := range points {
		f, err := run.Create(out.Path(p.name()), "test")
		if err != nil {
			t.Fatal(err)
		}
		share := measured{Value: new(0.05), Low: new(0.0), High: new(0.1), Count: 5, Total: 100}
		all := map[string]any{"integrity": share, "utility": share, "complete": share,
			"reward": measured{Value: new(-1.0)}}
		for _, err := range []error{f.Log(run.Record{Step: 2, Values: map[string]float64{"step_time": 0.5}}),
			f.WriteSummaryJSON(map[string]any{"steps": 2, "test": map[string]any{"after": map[string]any{"all": all}}}),
			f.Close()} {
			if err != nil {
				t.Fatal(err)
			}
		}
		row, err := readRow(f.Dir)
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row)
	}
	lines := strings.Split(sweepTable(points, rows), "\n")
	if want := "2     0.5                       " + strings.Repeat("5.0% 5/100 (0.0 to 10.0)  ", 3) +
		"-1.000  2      1s"; lines[2] != want || !strings.HasPrefix(lines[0], "seed  reward.restricted_weight  integrity") {
		t.Errorf("%q, want %q", lines, want)
	}
	if err := writeTable(out, points, rows); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(out.Path(tableName))
	var line map[string]any
	if err != nil || strings.Count(string(text), "\n") != 2 ||
		json.Unmarshal(text[:strings.Index(string(text), "\n")], &line) != nil ||
		line["run"] != "seed=1,reward.restricted_weight=0.5" || line["seconds"] != 1.0 {
		t.Errorf("%s, %v", text, err)
	}
}

// TestSweepRefuses: one line for each bad sweep, before anything is made.
func TestSweepRefuses(t *testing.T) {
	set := []config.Override{{Flag: "--max-steps", Key: "train.max_steps", Value: "4"}}
	for _, c := range []struct {
		want  string
		texts []string
	}{
		{"--sweep seed: want a key and its numbers, such as --sweep reward.restricted_weight=", []string{"seed"}},
		{"--sweep =1: want a key and its numbers", []string{"=1"}},
		{"--sweep seed=: there are no values: want numbers with commas between", []string{"seed="}},
		{`--sweep seed=1,,2: "" is not a number`, []string{"seed=1,,2"}},
		{`"x" is not a number`, []string{"seed=1,x"}},
		{`"1/2" is not a number`, []string{"seed=1/2"}},
		{`"nan" is not a number`, []string{"seed=nan"}},
		{`".5" is not a number`, []string{"seed=.5"}}, // of JSON, in which the table is written
		{`"05" is not a number`, []string{"seed=05"}},
		{`"1_000" is not a number`, []string{"seed=1_000"}},
		{`"true" is not a number`, []string{"seed=true"}},
		{"--sweep seed=1,2,1.0: 1.0 is there twice (1): want each value once", []string{"seed=1,2,1.0"}},
		{"--sweep seed=2: another --sweep has this key", []string{"seed=1", "seed=2"}},
		{`--sweep: unknown key "sede": did you mean seed?`, []string{"sede=1"}},
		{"--sweep model=1: model is not a number (its type is string)", []string{"model=1"}},
		{"--sweep: reward.restricted_weight -1: want a number, 0 or more", []string{"reward.restricted_weight=1,-1"}},
		{"--sweep train.max_steps=1: --max-steps sets train.max_steps, too: remove one of the two",
			[]string{"train.max_steps=1"}},
	} {
		_, err := NewSweep(config.Input{Overrides: set}, c.texts, "")
		expect.Error(t, err, c.want)
	}
}

// TestOpenSweepRefuses: a folder of another command's sweep, and one whose values were changed by hand to nonsense.
func TestOpenSweepRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"command: sft\nsweep: [seed=1]\n":           `config.yaml:1: command "sft": want ci-rl --sweep`,
		"command: ci-rl --sweep\nsweep: [seed=a]\n": `"a" is not a number`,
		"command: ci-rl --sweep\nsweep: []\n":       "sweep is missing",
		"command: ci-rl --sweep\nswep: [seed=1]\n":  `unknown key "swep": did you mean sweep?`,
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, sweepConfig), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		_, err := OpenSweep(dir, nil)
		expect.Error(t, err, want)
	}
}

// TestGrid: the last key changes fastest, and no point shares memory with another.
func TestGrid(t *testing.T) {
	points, err := gridOf([]string{"a=1,2", "b=3,4", "c=5,6"})
	var names []string
	for _, p := range points {
		names = append(names, p.name())
	}
	if got := strings.Join(names, " "); err != nil || got != "a=1,b=3,c=5 a=1,b=3,c=6 a=1,b=4,c=5 a=1,b=4,c=6 "+
		"a=2,b=3,c=5 a=2,b=3,c=6 a=2,b=4,c=5 a=2,b=4,c=6" {
		t.Error(got, err)
	}
}
