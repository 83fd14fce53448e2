package recipe

import (
	"slices"
	"testing"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/train"
)

// chosen is a run whose options are open but for the given ones.
func chosen(command string, parameters, rank int, given ...string) *Run {
	b := &Base{Train: config.Default[train.Options]("batch_size=128")}
	b.Adapting.LoRA.Rank = rank
	for key := range b.Train.Chosen() {
		b.Train.Unset = append(b.Train.Unset, key)
	}
	b.Train.Unset = slices.DeleteFunc(b.Train.Unset, func(key string) bool { return slices.Contains(given, key) })
	return &Run{Config: Config{Base: b, Command: command}, Reporter: run.Listen(nil),
		Opened: &Opened{Model: &model.Model{Config: sized(parameters)}}}
}

func TestChoose(t *testing.T) {
	const small, big = 135_000_000, 7_000_000_000
	for _, c := range []struct {
		command                  string
		n, rounds, size, rank    int
		batch, warm, evaluations int
		rate                     float64
	}{
		{"mappo", 1, 1, small, 0, 1, 0, 1, 5e-6},
		{"mappo", 3, 1, small, 0, 2, 0, 1, 5e-6},
		{"mappo", 36, 1, small, 0, 4, 0, 1, 5e-6},
		{"mappo", 140, 1, small, 16, 4, 3, 7, 5e-5},
		{"mappo", 500, 1, small, 0, 8, 6, 12, 5e-6},
		{"mappo", 500, 3, small, 0, 8, 18, 37, 5e-6},
		{"mappo", 60_000, 1, big, 0, 128, 46, 93, 1e-6},
		{"mappo", 600_000, 1, big, 16, 128, 100, 937, 5e-5},
		{"sft", 500, 1, big, 0, 8, 6, 12, 2e-5},
		{"sft", 500, 1, small, 8, 8, 6, 12, 2e-4},
		{"reward-model", 500, 1, small, 0, 8, 6, 12, 1e-5},
		{"grpo", 0, 0, small, 8, 128, 0, 0, 1e-5},
		{"ci-rl", 0, 0, small, 0, 128, 0, 0, 1e-6},
	} {
		r := chosen(c.command, c.size, c.rank)
		r.Choose(c.n, c.rounds, "pairs", c.n > 0)
		if g := r.Train; g.BatchSize != c.batch || g.WarmupSteps != c.warm || g.EvalEvery != c.evaluations ||
			g.LearningRate != c.rate || g.MicroBatchSize > g.BatchSize {
			t.Errorf("%s of %d examples, %d rounds, %d parameters, rank %d: batch %d of %d, warm-up %d, evaluations %d, "+
				"rate %v, want %+v", c.command, c.n, c.rounds, c.size, c.rank, g.BatchSize, g.MicroBatchSize,
				g.WarmupSteps, g.EvalEvery, g.LearningRate, c)
		}
	}
}

// TestChooseLeaves: what the user gave stays, also a zero.
func TestChooseLeaves(t *testing.T) {
	r := chosen("mappo", 1, 0, "batch_size", "micro_batch_size", "learning_rate", "warmup_steps", "eval_every")
	r.Train.LearningRate = 3
	was := r.Train
	if r.Choose(140, 1, "pairs", true); r.Train.BatchSize != 128 || r.Train.WarmupSteps != 0 || r.Train.EvalEvery != 0 ||
		r.Train.LearningRate != 3 {
		t.Errorf("%+v, want %+v", r.Train, was)
	}
	r = chosen("mappo", 1, 0, "micro_batch_size")
	r.Train.MicroBatchSize = 16
	if r.Choose(140, 1, "pairs", true); r.Train.BatchSize != 16 || r.Train.MicroBatchSize != 16 {
		t.Errorf("batch %d of %d at a time, want 16 of 16", r.Train.BatchSize, r.Train.MicroBatchSize)
	}
}

// sized is a model of about that many parameters.
func sized(parameters int) *model.Config {
	return &model.Config{VocabSize: parameters/512 + 1, HiddenSize: 512, TieEmbeddings: true}
}
