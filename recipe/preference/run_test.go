package preference

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/testkit"

	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/losses"
	"github.com/posttrain/posttrain/recipe"
)

// TestUselessGapsAreWarnedAbout at the start of a run that uses them.
func TestUselessGapsAreWarnedAbout(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "pairs.jsonl")
	row := `{"prompt":"Q","chosen":"yes","rejected":"no","chosen_score":0.00002,"rejected_score":0.00001}` + "\n"
	expect.Write(t, path, strings.Repeat(row, 4))
	for _, prior := range []string{losses.MaPPO, losses.None} {
		o := Spec.Defaults()
		o.Model, o.Backend, o.Data.TrainFiles, o.Loss.Prior = embedded.Name, "go", config.Names{path}, prior
		o.Train.BatchSize, o.Train.MicroBatchSize, o.Train.MaxSteps, o.Train.Epochs = 2, 2, 1, 0
		o.Dir = recipe.RunDir{Out: filepath.Join(dir, prior)}
		w := &testkit.Recorder{}
		if _, err := Run(context.Background(), o, w); err != nil {
			t.Fatal(err)
		}
		const want = "the median of the prior's gaps is 1e-05"
		warned := strings.Contains(strings.Join(w.Warned, "\n"), path+": "+want)
		if warned != (prior == losses.MaPPO) {
			t.Errorf("prior %s: warnings %q", prior, w.Warned)
		}
	}
}

// TestThePlainLossNeedsNoRewards: it trains on pairs of which some have no scores.
func TestThePlainLossNeedsNoRewards(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "pairs.jsonl")
	rows := `{"prompt":"Q","chosen":"yes","rejected":"no","chosen_score":1,"rejected_score":0}` + "\n" +
		`{"prompt":"R","chosen":"yes","rejected":"no"}`
	expect.Write(t, path, rows)
	for prior, want := range map[string]string{losses.MaPPO: "no scores, which the prior needs (1 of 2 pairs lack them)", losses.None: ""} {
		o := Spec.Defaults()
		o.Model, o.Backend, o.Data.TrainFiles, o.Loss.Prior = embedded.Name, "go", config.Names{path}, prior
		o.Train.BatchSize, o.Train.MicroBatchSize, o.Train.MaxSteps, o.Train.Epochs = 2, 2, 1, 0
		o.Dir = recipe.RunDir{Out: filepath.Join(dir, prior)}
		_, err := Run(context.Background(), o, nil)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("prior %s: %v: want %s", prior, err, want)
		}
	}
}

// Options that a program makes are checked as a user's are.
func TestRunChecksItsOptions(t *testing.T) {
	o := Spec.Defaults()
	o.Loss.Type, o.Train.LearningRate = "dop", -1
	_, err := Run(context.Background(), o, nil)
	for _, want := range []string{"options: model is missing", "options: data.train is missing",
		"options: loss.type dop: want dpo, ipo, simpo, cpo, hinge, robust, rpo, orpo or kto",
		"options: train.learning_rate -1: want a number above 0"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
