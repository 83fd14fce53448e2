package config

import (
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/grpo"
	"github.com/posttrain/posttrain/reward"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/train"
)

// CIRL is the configuration of posttrain ci-rl.
type CIRL struct {
	Command    string                 `yaml:"command"` // ci-rl
	Model      string                 `yaml:"model"`   // Embedded, or a Hugging Face model folder
	Backend    string                 `yaml:"backend"` // auto|go|onnx[:LIB]|xla[:cpu|:cuda|:PLUGIN]
	Seed       uint64                 `yaml:"seed"`
	Data       CIData                 `yaml:"data"`
	Sampling   rollout.Sampling       `yaml:"sampling"`
	Reward     reward.Options         `yaml:"reward"`
	GRPO       grpo.Options           `yaml:"grpo"`
	Validation grpo.ValidationOptions `yaml:"validation"`
	Train      RLTrain                `yaml:"train"`
}

// CIData is the data section of posttrain ci-rl. Paths are relative to the working directory.
type CIData struct {
	Train              string  `yaml:"train"`               // Embedded, or a .json, .jsonl or .parquet file of contextual-integrity items
	Scenarios          int     `yaml:"scenarios,omitempty"` // how many embedded ones are made, validation and test among them; 0 with a file
	ValidationFraction float64 `yaml:"validation_fraction"` // share of the items that choose the best checkpoint
	TestFraction       float64 `yaml:"test_fraction"`       // share of the items that the result is measured on; 0: none
	Prompt             string  `yaml:"prompt"`              // compact|plain|cot
	Prefill            bool    `yaml:"prefill"`             // the prompt ends with <think>, which the completion goes on from
	MaxPromptTokens    int     `yaml:"max_prompt_tokens"`   // longer prompts are dropped and counted; 0: no limit
}

// RLTrain is the train section of posttrain ci-rl: what train.Options has, less what is about batches of examples and
// their evaluation, which the sections grpo and validation say. A step is a rollout batch with its updates.
type RLTrain struct {
	Epochs                int     `yaml:"epochs,omitempty"`
	MaxSteps              int     `yaml:"max_steps"`
	LearningRate          float64 `yaml:"learning_rate"`
	Schedule              string  `yaml:"schedule"`
	WarmupSteps           int     `yaml:"warmup_steps"`
	WeightDecay           float64 `yaml:"weight_decay"`
	AdamBeta1             float64 `yaml:"adam_beta1"`
	AdamBeta2             float64 `yaml:"adam_beta2"`
	AdamEpsilon           float64 `yaml:"adam_epsilon"`
	MaxGradNorm           float64 `yaml:"max_grad_norm"`
	GradientCheckpointing bool    `yaml:"gradient_checkpointing"`
	DType                 string  `yaml:"dtype"`
	SaveDType             string  `yaml:"save_dtype"`
	Shuffle               bool    `yaml:"shuffle"`
	LogEvery              int     `yaml:"log_every"`
	CheckpointEvery       int     `yaml:"checkpoint_every"`
	CheckpointKeep        int     `yaml:"checkpoint_keep"`
}

// Options are the same as the options of a training loop.
func (t RLTrain) Options() train.Options {
	return train.Options{
		Epochs: t.Epochs, MaxSteps: t.MaxSteps,
		LearningRate: t.LearningRate, Schedule: t.Schedule, WarmupSteps: t.WarmupSteps, WeightDecay: t.WeightDecay,
		AdamBeta1: t.AdamBeta1, AdamBeta2: t.AdamBeta2, AdamEpsilon: t.AdamEpsilon, MaxGradNorm: t.MaxGradNorm,
		GradientCheckpointing: t.GradientCheckpointing, DType: t.DType, SaveDType: t.SaveDType,
		Shuffle: t.Shuffle, LogEvery: t.LogEvery, CheckpointEvery: t.CheckpointEvery, CheckpointKeep: t.CheckpointKeep,
	}
}

// embeddedScenarios is how many scenarios are made where the configuration does not say.
const embeddedScenarios = 2000

// defaultCIRL has the released settings; where these leave a choice open, the field's. Model and data must be given.
func defaultCIRL() CIRL {
	t := defaultTrain()
	return CIRL{
		Command:    CommandCIRL,
		Backend:    "auto",
		Data:       CIData{ValidationFraction: 0.09, TestFraction: 0.10, MaxPromptTokens: 768},
		Sampling:   rollout.Sampling{MaxNew: 2048, Temperature: 1},
		Reward:     reward.DefaultOptions(),
		GRPO:       grpo.DefaultOptions(),
		Validation: grpo.DefaultValidation(),
		Train: RLTrain{
			Epochs: 150, LearningRate: 1e-6, Schedule: "constant", WeightDecay: 0.01,
			AdamBeta1: t.AdamBeta1, AdamBeta2: t.AdamBeta2, AdamEpsilon: t.AdamEpsilon, MaxGradNorm: t.MaxGradNorm,
			DType: t.DType, SaveDType: t.SaveDType, Shuffle: true, LogEvery: 1, CheckpointEvery: 20, CheckpointKeep: t.CheckpointKeep,
		},
	}
}

// settleRL gives the options that depend on others their defaults.
func settleRL(l *loader, c *CIRL) {
	if c.Data.Train == Embedded && !l.has("data.scenarios") {
		c.Data.Scenarios = embeddedScenarios
	}
	if !l.has("data.prompt") {
		c.Data.Prompt = ci.PromptCoT
		if c.Model == Embedded {
			c.Data.Prompt = ci.PromptCompact
		}
	}
	if !l.has("data.prefill") {
		c.Data.Prefill = c.Data.Prompt == ci.PromptCoT
	}
	if c.GRPO.KL == grpo.None && !l.has("grpo.kl_coef") {
		c.GRPO.KLCoef = 0
	}
	if c.GRPO.Aggregation == grpo.SeqMeanConstant && !l.has("grpo.norm_length") {
		c.GRPO.NormLength = c.Sampling.MaxNew
	}
}
