package recipe_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/recipe/sft"
)

// TestSampleAnswers: evaluations show answers to held-out prompts before and now, which change nothing of what is learnt.
func TestSampleAnswers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rows.jsonl")
	text := strings.Repeat(`{"prompt": "Is Mira here?", "completion": "Yes."}`+"\n"+
		`{"prompt": "Is Kato here?", "completion": "No."}`+"\n", 4)
	expect.Write(t, path, text)
	weights := map[int][]byte{}
	for _, n := range []int{2, 0} {
		o := sft.Spec.Defaults()
		o.Train.EvalMetric = "eval_loss"
		o.Model, o.Backend, o.Data.TrainFiles = embedded.Name, "go", config.Names{path}
		o.Dir.Out, o.Data.EvalFraction = filepath.Join(t.TempDir(), "run"), 0.5
		o.Train.Epochs, o.Train.MaxSteps, o.Train.EvalEvery, o.Train.ShowSamples = 0, 2, 1, n
		o.Train.BatchSize, o.Train.MicroBatchSize, o.Train.LearningRate = 4, 4, 1e-3
		result, err := sft.Run(t.Context(), o, run.Listen(nil))
		if err != nil {
			t.Fatal(err)
		}
		if weights[n], err = os.ReadFile(filepath.Join(result.Dir, "model", "model.safetensors")); err != nil {
			t.Fatal(err)
		}
		lines, err := os.ReadFile(filepath.Join(result.Dir, "samples.jsonl"))
		if n == 0 {
			if err == nil {
				t.Error("show_samples: 0 has samples")
			}
			continue
		}
		var steps []int
		prompts := map[string]bool{}
		for line := range bytes.Lines(lines) {
			var s struct {
				Step               int
				Prompt, Completion string
			}
			if err := json.Unmarshal(line, &s); err != nil || !strings.Contains(s.Prompt, "here?") || s.Completion == "" {
				t.Errorf("%s, %v", line, err)
			}
			steps, prompts[s.Prompt] = append(steps, s.Step), true
		}
		if len(steps) != 6 || steps[0] != 0 || steps[5] != 2 || len(prompts) != 2 {
			t.Errorf("steps %v, %d prompts: want two at each of three evaluations", steps, len(prompts))
		}
	}
	if !bytes.Equal(weights[0], weights[2]) {
		t.Error("samples change the weights")
	}
}
