package rl

import (
	"path/filepath"
	"testing"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

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
		_, err := CISweeps.New(config.Input{Overrides: set}, c.texts, "")
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
		expect.Write(t, filepath.Join(dir, "config.yaml"), text)
		_, err := CISweeps.Open(dir, nil)
		expect.Error(t, err, want)
	}
}
