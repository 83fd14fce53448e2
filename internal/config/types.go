package config

import (
	"github.com/posttrain/posttrain/batch"
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/losses"
	"github.com/posttrain/posttrain/train"
)

// Embedded names the model or the data that the program carries within itself.
const Embedded = "embedded"

// The commands that have a configuration.
const (
	CommandMappo = "mappo"
	CommandSFT   = "sft"
	CommandCIRL  = "ci-rl"
)

// Mappo is the configuration of posttrain mappo.
type Mappo struct {
	Command   string         `yaml:"command"`   // mappo
	Model     string         `yaml:"model"`     // Embedded, or a Hugging Face model folder
	Reference string         `yaml:"reference"` // a model folder; empty: the model as it is before training
	Backend   string         `yaml:"backend"`   // auto|go|onnx[:LIB]|xla[:cpu|:cuda|:PLUGIN]
	Seed      uint64         `yaml:"seed"`
	Data      PreferenceData `yaml:"data"`
	Loss      losses.Options `yaml:"loss"`
	Train     train.Options  `yaml:"train"`
}

// SFT is the configuration of posttrain sft.
type SFT struct {
	Command string            `yaml:"command"` // sft
	Model   string            `yaml:"model"`   // Embedded, or a Hugging Face model folder
	Backend string            `yaml:"backend"` // auto|go|onnx[:LIB]|xla[:cpu|:cuda|:PLUGIN]
	Seed    uint64            `yaml:"seed"`
	Data    DemonstrationData `yaml:"data"`
	Train   train.Options     `yaml:"train"`
}

// Source says where examples come from. Paths are relative to the working directory.
type Source struct {
	Train        string  `yaml:"train"`         // Embedded, or a .jsonl, .json or .parquet file, also .gz
	Eval         string  `yaml:"eval"`          // the same, for evaluation; empty: none
	EvalFraction float64 `yaml:"eval_fraction"` // share of Train held out for evaluation; 0: none; excludes Eval
}

// PreferenceData is the data section of posttrain mappo. With prior none the options of scores and rewards stand at their
// defaults: rewards show in the logged prior/reward_gap and do nothing else.
type PreferenceData struct {
	Source                 `yaml:",inline"`
	data.PreferenceOptions `yaml:",inline"`
	data.RewardOptions     `yaml:",inline"`
	batch.Options          `yaml:",inline"`
}

// DemonstrationData is the data section of posttrain sft.
type DemonstrationData struct {
	Source        `yaml:",inline"`
	LossOn        string `yaml:"loss_on"` // completion|all
	batch.Options `yaml:",inline"`
}

// HasEval says that there are examples to evaluate on.
func (s Source) HasEval() bool { return s.Eval != "" || s.EvalFraction > 0 }

// defaultMappo has the paper's settings where the paper has them, for a loss; model and data must be given.
func defaultMappo(loss string) Mappo {
	t := defaultTrain()
	t.BatchSize, t.LearningRate, t.WarmupSteps, t.WeightDecay = 128, 5e-7, 100, 0.01
	return Mappo{
		Command: CommandMappo,
		Backend: "auto",
		Data:    PreferenceData{RewardOptions: data.DefaultRewardOptions(), Options: batch.Options{Truncate: "none"}},
		Loss:    losses.Defaults(loss),
		Train:   t,
	}
}

// defaultSFT has the field's settings; model and data must be given.
func defaultSFT() SFT {
	t := defaultTrain()
	t.BatchSize, t.LearningRate, t.SharePrefix = 32, 2e-5, ""
	return SFT{
		Command: CommandSFT,
		Backend: "auto",
		Data:    DemonstrationData{LossOn: "completion", Options: batch.Options{Truncate: "none"}},
		Train:   t,
	}
}

func defaultTrain() train.Options {
	return train.Options{
		Epochs:          1,
		Schedule:        "linear",
		AdamBeta1:       0.9,
		AdamBeta2:       0.999,
		AdamEpsilon:     1e-8,
		MaxGradNorm:     1,
		DType:           "auto",
		SaveDType:       "auto",
		SharePrefix:     "auto",
		Shuffle:         true,
		LogEvery:        1,
		CheckpointEvery: 100, // what a crash can cost at most
		CheckpointKeep:  2,
	}
}

// defaultMicroBatch bounds the memory of a step where the file does not.
const defaultMicroBatch = 8

// settle gives the options that depend on others their defaults.
func settle(l *loader, s Source, t *train.Options) {
	if !l.has("train.micro_batch_size") {
		t.MicroBatchSize = min(defaultMicroBatch, max(t.BatchSize, 0))
	}
	if !l.has("train.eval_metric") && s.HasEval() {
		t.EvalMetric = "eval_loss"
	}
}
