package rl

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/recipe"

	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/reward"
	"github.com/posttrain/posttrain/rollout/scorer"
)

// makeTally counts n samples, complete ones first; the others share a restricted keyword and nothing else.
func makeTally(complete, n int) *eval.Tally {
	var t eval.Tally
	k := reward.Keywords{Required: []string{"a"}, Restricted: []string{"z"}}
	for i := range n {
		text := "<think></think><answer>z</answer>"
		if i < complete {
			text = "<think></think><answer>a</answer>"
		}
		t.Add(eval.Sample{Item: i, Required: 1, Score: reward.Evaluate(k, text, false, reward.DefaultOptions())})
	}
	return &t
}

// TestTableOfTheTest: numerators, denominators and intervals of before and after, in columns; 80 of 400 is 20.0 %, and
// its Wilson interval 16.4 to 24.2 by hand.
func TestTableOfTheTest(t *testing.T) {
	text := table(makeTally(80, 400), makeTally(200, 400))
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) != 6 {
		t.Fatalf("%d lines:\n%s", len(lines), text)
	}
	if !strings.Contains(lines[3], "complete") || !strings.Contains(lines[3], "20.0%  80/400    (16.4 to 24.2)") ||
		!strings.Contains(lines[3], "50.0%  200/400   (45.1 to 54.9)") {
		t.Errorf("complete: %s", lines[3])
	}
	// 80·1 - 320·1 of 400, then 200 - 200
	if !strings.Contains(lines[5], "-0.600") || !strings.Contains(lines[5], " 0.000") {
		t.Errorf("mean reward: %s", lines[5])
	}
	at := strings.Index(lines[0], "after")
	for _, line := range lines[1:] {
		if len(line) <= at || line[at-1] != ' ' || line[at-2] != ' ' {
			t.Errorf("the columns are crooked:\n%s", text)
		}
	}
}

// TestTallyWithoutReward: a reward that an answer is not for is no 0 in that reward's mean.
func TestTallyWithoutReward(t *testing.T) {
	task := &prompts{o: &Options{Reward: scorer.Options{Kind: "command,exact"}}}
	report := task.tally([]eval.Row{{Reward: 1, Rewards: []float64{0.5, 1}},
		{Reward: 1, Rewards: []float64{0, 1}, Without: []int{0}}})
	if got := report.All.Rewards["command"].Value(); got != 0.5 || report.All.Rewards["exact"].Value() != 1 {
		t.Errorf("%v, want 0.5: %+v", got, report)
	}
}

func TestVerdictOfTheTest(t *testing.T) {
	for _, c := range []struct {
		before, after int // of 400
		says          string
	}{
		{80, 140, "The share of complete answers rose clearly (the intervals are apart); the mean reward rose " +
			"clearly (the intervals are apart).\n"},
		{80, 90, "The share of complete answers rose, but the intervals overlap; the mean reward rose, but the " +
			"intervals overlap.\n"},
		{80, 80, "The share of complete answers stayed the same; the mean reward stayed the same.\n"},
		{80, 70, "The share of complete answers sank, but the intervals overlap; the mean reward sank, but the " +
			"intervals overlap.\n"},
		{140, 80, "The share of complete answers sank clearly (the intervals are apart); the mean reward sank " +
			"clearly (the intervals are apart).\n"},
	} {
		if got := verdict(makeTally(c.before, 400), makeTally(c.after, 400)); got != c.says {
			t.Errorf("%d to %d: %q, want %q", c.before, c.after, got, c.says)
		}
	}
}

// TestEmbeddedItems: sizes by the fractions, distinct scenarios, other ones by seed, and nothing that is tested has
// values which training shows.
func TestEmbeddedItems(t *testing.T) {
	o := CI{Base: recipe.Base{Seed: 1}, Data: CIData{Files: recipe.Files{TrainFiles: config.Names{embedded.Name}},
		Scenarios: 200, Parts: Parts{ValidationFraction: 0.1, TestFraction: 0.2}}}
	parts, err := o.Items(nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(parts[0]) != 140 || len(parts[1]) != 20 || len(parts[2]) != 40 {
		t.Errorf("%d, %d, %d, want 140, 20, 40", len(parts[0]), len(parts[1]), len(parts[2]))
	}
	seen := map[string]int{}
	for k, part := range parts {
		for _, item := range part {
			key := item.DatasetItem.UserTask
			for _, f := range item.DatasetItem.Information {
				key += "\n" + f.Text
			}
			if at, twice := seen[key]; twice {
				t.Errorf("a scenario is in the parts %d and %d:\n%s", at, k, key)
			}
			seen[key] = k
		}
	}
	again, _ := o.Items(nil)
	o.Seed = 2
	if other, _ := o.Items(nil); again[2][0].DatasetItem.Information[0] != parts[2][0].DatasetItem.Information[0] ||
		other[2][0].DatasetItem.Information[0] == parts[2][0].DatasetItem.Information[0] &&
			other[2][1].DatasetItem.Information[0] == parts[2][1].DatasetItem.Information[0] {
		t.Error("the seed does not decide the scenarios")
	}
}

// TestPartsOfFiles: a part with a file has all its items, whatever the other's share; what is trained on too is named,
// also where one file has rows twice.
func TestPartsOfFiles(t *testing.T) {
	dir := t.TempDir()
	items := ci.Synthesize(40, 3)
	write := func(name string, items []ci.Item) string {
		path := filepath.Join(dir, name)
		if err := data.WriteAll(path, items); err != nil {
			t.Fatal(err)
		}
		return path
	}
	train, validation := write("train.json", items[:30]), write("v.jsonl", items[29:33])
	test := write("t.jsonl.gz", items[33:])
	for _, c := range []struct {
		data  CIData
		sizes [3]int
		warns string
	}{
		{CIData{Files: recipe.Files{TrainFiles: config.Names{train}}, Parts: Parts{ValidationFraction: 0.1,
			TestFraction: 0.2}}, [3]int{21, 3, 6}, ""},
		{CIData{Files: recipe.Files{TrainFiles: config.Names{train}}, Parts: Parts{ValidationFraction: 0.1,
			TestFraction: 0.2, Test: test}}, [3]int{27, 3, 7}, ""},
		{CIData{Files: recipe.Files{TrainFiles: config.Names{train}}, Parts: Parts{ValidationFraction: 0.1,
			TestFraction: 0, Validation: validation}}, [3]int{30, 4, 0},
			validation + ": 1 of 4 items are in the training data, too"},
		{CIData{Files: recipe.Files{TrainFiles: config.Names{train}}, Parts: Parts{ValidationFraction: 0.1,
			TestFraction: 0.2, Validation: validation, Test: test}},
			[3]int{30, 4, 7}, validation + ": 1 of 4 items are in the training data, too"},
	} {
		var heard testkit.Recorder
		o := CI{Base: recipe.Base{Seed: 1}, Data: c.data}
		parts, err := o.Items(&heard)
		if got := [3]int{len(parts[0]), len(parts[1]), len(parts[2])}; err != nil || got != c.sizes ||
			strings.Join(heard.Warned, "\n") != c.warns {
			t.Errorf("%+v: %v, %v, %q, want %v, %q", c.data, err, got, heard.Warned, c.sizes, c.warns)
		}
	}
	double := write("double.json", slices.Concat(items, items))
	copies := CI{Base: recipe.Base{Seed: 1}, Data: CIData{Files: recipe.Files{TrainFiles: config.Names{double}},
		Parts: Parts{ValidationFraction: 0.1, TestFraction: 0}}}
	var heard testkit.Recorder
	if held, err := copies.Items(&heard); err != nil || len(held[1]) != 8 || len(heard.Warned) != 1 ||
		!strings.HasPrefix(heard.Warned[0], "data.validation_fraction: ") ||
		!strings.HasSuffix(heard.Warned[0], " of 8 items are in the training data, too") {
		t.Errorf("rows that a file has twice: %q, %v", heard.Warned, err)
	}
	twice := CI{Base: recipe.Base{Seed: 1}, Data: CIData{
		Files: recipe.Files{TrainFiles: config.Names{train, test, train}},
		Parts: Parts{ValidationFraction: 0.1, TestFraction: 0.2}}}
	parts, err := twice.Items(nil)
	counts := map[string]int{}
	for _, item := range slices.Concat(parts[:]...) {
		counts[item.Source]++
	}
	for _, item := range slices.Concat(parts[1:]...) {
		if counts[item.Source] != 1 {
			t.Errorf("%s is held out, and there %d times", item.Source, counts[item.Source])
		}
	}
	if err != nil || len(parts[1]) != 4 || len(parts[2]) != 7 || len(parts[0]) < 2*(30-11)+7 {
		t.Errorf("%d, %d, %d, %v", len(parts[0]), len(parts[1]), len(parts[2]), err)
	}
	o := CI{Data: CIData{Files: recipe.Files{TrainFiles: config.Names{train}},
		Parts: Parts{Validation: filepath.Join(dir, "no.json"), TestFraction: 0.2}}}
	if _, err := o.Items(nil); err == nil || !strings.Contains(err.Error(), "no.json: no such file") {
		t.Errorf("a file that does not exist: %v", err)
	}
}
