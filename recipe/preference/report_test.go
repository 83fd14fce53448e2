package preference

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/losses"
	"github.com/posttrain/posttrain/recipe"
)

// TestVerdict reads the two curves in words.
func TestVerdict(t *testing.T) {
	for _, c := range []struct {
		chosen, rejected float64 // at the end; both began at -10
		says             string
	}{
		{-12, -15, "Both sank: the squeezing effect."},
		{-9, -15, "more likely and the rejected ones less"},
		{-9, -8, "Both rose"},
		{-10, -10, "Neither moved"},
		{-12, -8, "sank while the rejected rose"},
	} {
		got := verdict(recipe.Change{First: -10, Last: c.chosen}, recipe.Change{First: -10, Last: c.rejected})
		if !strings.Contains(got, c.says) {
			t.Errorf("chosen to %v, rejected to %v: %q, want %q", c.chosen, c.rejected, got, c.says)
		}
	}
}

// The changes are means over the pairs.
func TestChanges(t *testing.T) {
	chosen, rejected := changes([][2]float32{{-10, -20}, {-30, -40}}, [][2]float32{{-9, -25}, {-28, -45}})
	if chosen.Last != 1.5 || rejected.Last != -5 {
		t.Errorf("chosen %v, rejected %v, want 1.5 and -5", chosen.Last, rejected.Last)
	}
}

// TestMeasuredAfterTraining: the log-probs after training are those of the model that the run ends with. Where the
// held-out pairs want the opposite, that is the one before training.
func TestMeasuredAfterTraining(t *testing.T) {
	dir := t.TempDir()
	yes, no := filepath.Join(dir, "yes.jsonl"), filepath.Join(dir, "no.jsonl")
	for path, row := range map[string]string{
		yes: `{"prompt":"Q","chosen":"yes","rejected":"no"}`, no: `{"prompt":"Q","chosen":"no","rejected":"yes"}`,
	} {
		if err := os.WriteFile(path, []byte(row+"\n"+row), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for heldOut, want := range map[string]string{
		"": "log p(chosen) rose by ", no: "log p(chosen) did not change, log p(rejected) did not change",
	} {
		o := Defaults("dpo")
		o.Model, o.Backend, o.Data.Train, o.Loss.Prior = embedded.Name, "go", config.Names{yes}, losses.None
		o.Data.Eval, o.Data.EvalFraction = heldOut, 0
		if heldOut != "" {
			o.Train.EvalMetric = "eval_loss"
		}
		o.Train.BatchSize, o.Train.MicroBatchSize, o.Train.MaxSteps, o.Train.Epochs = 2, 2, 2, 0
		o.Train.LearningRate, o.Train.WarmupSteps = 1e-3, 0
		o.Dir = recipe.RunDir{Out: filepath.Join(dir, "out"+filepath.Base(heldOut))}
		result, err := Run(context.Background(), o, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(result.Summary, want) {
			t.Errorf("held out %q: %s\nwant %s", heldOut, result.Summary, want)
		}
	}
}
