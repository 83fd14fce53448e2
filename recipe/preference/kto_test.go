package preference

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/testkit"

	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/losses"
	"github.com/posttrain/posttrain/recipe"
)

// ktoOptions are for a run of two steps on rows.
func ktoOptions(t *testing.T, rows string) Options {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "answers.jsonl")
	expect.Write(t, path, rows)
	o := Spec.Defaults()
	o.Loss = losses.Defaults("kto")
	o.Model, o.Backend, o.Data.TrainFiles = embedded.Name, "go", config.Names{path}
	o.Train.BatchSize, o.Train.MicroBatchSize, o.Train.MaxSteps, o.Train.Epochs = 4, 2, 2, 0
	o.Train.LearningRate, o.Train.WarmupSteps = 1e-3, 0
	o.Dir = recipe.RunDir{Out: filepath.Join(dir, "out")}
	return o
}

// TestKTO trains on answers and a pair, and says what it does.
func TestKTO(t *testing.T) {
	rows := `{"prompt":"Q","chosen":"yes","rejected":"no"}` + "\n"
	for i := range 9 {
		rows += fmt.Sprintf(`{"prompt":"Q%d","completion":"answer %d","label":%v}`+"\n", i, i*i, i%3 == 0)
	}
	o := ktoOptions(t, rows)
	o.Data.EvalFraction, o.Train.EvalMetric, o.Adapting.LoRA.Rank = 0.3, "eval_rewards/margins", 2
	w := &testkit.Recorder{}
	result, err := Run(context.Background(), o, w)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(result.Summary, "KTO: 2 steps on ") ||
		!strings.Contains(result.Summary, "held-out answers: log p(chosen) went from") {
		t.Error(result.Summary)
	}
	if len(w.Warned) != 1 || !strings.Contains(w.Warned[0], "the paper of KTO advises a desirable_weight from") {
		t.Errorf("warnings %q", w.Warned)
	}
	records, err := run.ReadMetrics(filepath.Join(result.Dir, "metrics.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"kl", "loss", "logps/chosen", "logps/rejected", "rewards/margins"} {
		if _, ok := recipe.ChangeOf(records, name); !ok {
			t.Errorf("%s is not logged", name)
		}
	}
}

// TestRehearsal: of kto the desirable answers are rehearsed; mode online has no answers.
func TestRehearsal(t *testing.T) {
	o := ktoOptions(t, `{"prompt":"a","completion":"yes","label":true}
{"prompt":"b","completion":"no","label":false}
{"prompt":"c","chosen":"fine","rejected":"bad"}
`)
	p, err := o.Rehearsal()
	if err != nil || len(p.Rows) != 2 || p.Rows[0].Completion.Plain != "yes" || p.Rows[1].Completion.Plain != "fine" {
		t.Errorf("%+v, %v", p, err)
	}
	o.Mode = "online"
	_, err = o.Rehearsal()
	expect.Error(t, err, "mode online cannot be rehearsed")
}

func TestKTOFaults(t *testing.T) {
	row := `{"prompt":"Q","completion":"yes","label":true}` + "\n"
	o := ktoOptions(t, row+row)
	_, err := Run(context.Background(), o, nil)
	expect.Error(t, err, "answers.jsonl: all 2 examples have the same prompt: kto measures answers to other prompts")
	o.Train.BatchSize, o.Train.MicroBatchSize, o.Data.EvalFraction = 1, 1, 0.5
	o.Train.EvalMetric = "eval_rewards/accuracies"
	_, err = Run(context.Background(), o, nil)
	for _, want := range []string{
		"train.batch_size 1: kto measures answers of a batch to other prompts of it: want 2 or more",
		`train.eval_metric "eval_rewards/accuracies": want eval_loss, eval_rewards/margins`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %s", err, want)
		}
	}
}
