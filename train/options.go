package train

import (
	"maps"
	"slices"

	"github.com/posttrain/posttrain/internal/adamw"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/config/fault"
)

// Options are the settings of a training loop, whatever its objective.
type Options struct {
	Epochs         int `yaml:"epochs,omitempty" want:">=0" words:"a whole number, 1 or more" default:"1" flag:"epochs" help:"passes over the training data"`
	MaxSteps       int `yaml:"max_steps" want:">=0" flag:"max-steps" help:"stop after this many updates, whatever the epochs; 0: run the epochs"`
	BatchSize      int `yaml:"batch_size" want:">=1" chosen:"by the data, at most %v" flag:"batch-size" help:"examples (pairs, demonstrations) of an update"`
	MicroBatchSize int `yaml:"micro_batch_size" want:">=0" help:"examples of a forward pass: fewer need less memory; 0: the whole batch"`

	LearningRate float64 `yaml:"learning_rate" want:">0" chosen:"by method and model" flag:"learning-rate" help:"highest rate"`
	Schedule     string  `yaml:"schedule" want:"constant|linear|cosine" default:"linear" help:"of the rate after the warm-up:"`
	WarmupSteps  int     `yaml:"warmup_steps" want:">=0" chosen:"a tenth of the steps, at most %v" help:"linear rise from 0"`
	WeightDecay  float64 `yaml:"weight_decay" want:">=0" help:"decoupled; norms and biases are exempt"`
	AdamBeta1    float64 `yaml:"adam_beta1" want:">=0 <1" default:"0.9" help:"decay of the first moment"`
	AdamBeta2    float64 `yaml:"adam_beta2" want:">=0 <1" default:"0.999" help:"decay of the second moment"`
	AdamEpsilon  float64 `yaml:"adam_epsilon" want:">0" default:"1e-8" help:"added to the root of the second moment"`
	MaxGradNorm  float64 `yaml:"max_grad_norm" want:">=0" zero:"off" default:"1" help:"clip the norm of all gradients together; 0: off"`

	GradientCheckpointing bool   `yaml:"gradient_checkpointing" help:"compute layers again in the backward pass: slower, far less memory"`
	DType                 string `yaml:"dtype" want:"auto|float32|bfloat16" default:"auto" help:"of the computation (bfloat16: xla); master weights are float32"`
	Moments               string `yaml:"moments,omitempty" want:"|float32|bfloat16" words:"float32 or bfloat16" help:"AdamW's, on xla: bfloat16 halves their memory; empty: float32"`
	SaveDType             string `yaml:"save_dtype" want:"auto|float32|bfloat16|float16" default:"auto" help:"of the saved model; auto: as it was stored"`
	SharePrefix           string `yaml:"share_prefix,omitempty" want:"|auto|on|off" words:"auto, on or off" default:"auto" help:"a row holds the prompt once and each answer to it; auto: if that saves time"`
	Shuffle               bool   `yaml:"shuffle" default:"true" help:"a new seeded order every epoch; false: file order"`

	LogEvery          int     `yaml:"log_every" want:">=1" default:"1" help:"steps between lines of metrics.jsonl"`
	EvalEvery         int     `yaml:"eval_every" want:">=0" help:"steps between evaluations; 0: only before and after training"`
	EvalMetric        string  `yaml:"eval_metric" default:"eval_loss" help:"names the best checkpoint, such as eval_loss or eval_rewards/accuracies"`
	Patience          int     `yaml:"patience,omitempty" want:">=0" zero:"off" flag:"patience" help:"stop after this many evaluations in a row that are no better than the best by eval_metric; 0: off"`
	ShowSamples       int     `yaml:"show_samples" want:">=0" default:"2" flag:"show-samples" help:"held-out prompts to which each evaluation shows an answer before and now; 0: none"`
	CheckpointEvery   int     `yaml:"checkpoint_every" want:">=0" default:"100" help:"steps between checkpoints; 0: at the end and on interruption"`
	CheckpointMinutes float64 `yaml:"checkpoint_minutes" want:">=0" zero:"only by steps" default:"2" help:"most minutes without a checkpoint; 0: only by steps"`
	CheckpointKeep    int     `yaml:"checkpoint_keep" want:">=1" default:"2" help:"how many of the newest are kept, beside the best weights"`

	Unset []string `yaml:"-"` // keys of Chosen that the user left open, for who knows the data to choose
}

// AdamW is the optimiser's part of the options.
func (o Options) AdamW() AdamW {
	return AdamW{adamw.Options{Beta1: o.AdamBeta1, Beta2: o.AdamBeta2, Epsilon: o.AdamEpsilon,
		WeightDecay: o.WeightDecay, MaxNorm: o.MaxGradNorm}, o.Moments == "bfloat16"}
}

// Resolve leaves one of epochs and max_steps where both say how long the run is: the command line wins over the file;
// both from one of them is a fault. Without a micro batch, eight examples bound the memory of a step.
func (o *Options) Resolve(g *config.Given) {
	if g.Text("epochs") == "0" {
		g.Refuse("epochs", 0, "want a whole number, 1 or more")
	}
	if g.Has("epochs") && o.Epochs > 0 && g.Has("max_steps") && o.MaxSteps > 0 {
		switch e, s := g.FromCommandLine("epochs"), g.FromCommandLine("max_steps"); {
		case e == s:
			g.Refuse("max_steps", o.MaxSteps, "train.epochs %d also says how long the run is; give one of the two", o.Epochs)
		case e:
			o.MaxSteps = 0
			g.Drop("max_steps")
		}
	}
	if o.MaxSteps > 0 { // so that nothing shows the epochs as in force
		o.Epochs = 0
		g.Drop("epochs")
	}
	for _, key := range slices.Sorted(maps.Keys(o.Chosen())) {
		if !g.Has(key) {
			o.Unset = append(o.Unset, key)
		}
	}
	if !g.Has("micro_batch_size") {
		o.MicroBatchSize = min(8, max(o.BatchSize, 0))
	}
}

// Chosen are the options, by key, that follow from data, method and model where nobody gives them: pointers.
func (o *Options) Chosen() map[string]any {
	return map[string]any{"batch_size": &o.BatchSize, "micro_batch_size": &o.MicroBatchSize, "eval_every": &o.EvalEvery,
		"learning_rate": &o.LearningRate, "warmup_steps": &o.WarmupSteps}
}

// Idle are the keys that are still to be chosen: what is resolved leaves them out.
func (o *Options) Idle(*config.Given) config.Idle {
	idle := config.Idle{}
	idle.Add("", o.Unset...)
	return idle
}

// IsUnset says that the user left a key open, and nothing has been chosen yet.
func (o *Options) IsUnset(key string) bool { return slices.Contains(o.Unset, key) }

// Check names every fault of the options.
func (o Options) Check() []fault.Fault {
	faults := fault.Check(o)
	if o.Epochs == 0 && o.MaxSteps == 0 {
		faults.Add("epochs", 0, "want a whole number, 1 or more")
	}
	if o.BatchSize > 0 && o.MicroBatchSize > o.BatchSize {
		faults.Add("micro_batch_size", o.MicroBatchSize, "want at most train.batch_size, %d", o.BatchSize)
	}
	return faults
}

// Err joins the faults that would make a loop do something else than train into one error; a loop over rollouts has no
// use for the rest.
func (o Options) Err() error {
	faults := o.Check()
	vital := []string{"epochs", "learning_rate", "schedule", "adam_beta1", "adam_beta2", "adam_epsilon"}
	idle := func(f fault.Fault) bool { return !slices.Contains(vital, f.Key) }
	return fault.Err("train", slices.DeleteFunc(faults, idle))
}

// Micro is the most examples of a forward pass.
func (o Options) Micro() int {
	if o.MicroBatchSize > 0 {
		return min(o.MicroBatchSize, o.BatchSize)
	}
	return o.BatchSize
}

// Defaults are the field's settings: AdamW with a linear schedule, one epoch. Batch size and learning rate depend on
// the method and the model, so that the caller must give them.
func Defaults() Options { return config.Default[Options]() }
