package train

import (
	"slices"

	"github.com/posttrain/posttrain/internal/config/fault"
)

// Options are the settings of a training loop, whatever its objective.
type Options struct {
	// passes over the training data; 0 where MaxSteps is above 0
	Epochs int `yaml:"epochs,omitempty" want:">=0" words:"a whole number, 1 or more"`
	// stop after this many updates, whatever the epochs; 0: run the epochs
	MaxSteps int `yaml:"max_steps" want:">=0"`
	// examples (pairs, demonstrations) per update
	BatchSize int `yaml:"batch_size" want:">=1"`
	// examples per forward pass; 0: the whole batch at once
	MicroBatchSize int `yaml:"micro_batch_size" want:">=0"`
	// the peak rate
	LearningRate float64 `yaml:"learning_rate" want:">0"`
	// after the warm-up
	Schedule string `yaml:"schedule" want:"constant|linear|cosine"`
	// linear rise from 0
	WarmupSteps int `yaml:"warmup_steps" want:">=0"`
	// decoupled; norms and biases are exempt
	WeightDecay float64 `yaml:"weight_decay" want:">=0"`
	// decay of the first and of the second moment
	AdamBeta1 float64 `yaml:"adam_beta1" want:">=0 <1"`
	AdamBeta2 float64 `yaml:"adam_beta2" want:">=0 <1"`
	// added to the root of the second moment
	AdamEpsilon float64 `yaml:"adam_epsilon" want:">0"`
	// the gradient is clipped to this global norm
	MaxGradNorm float64 `yaml:"max_grad_norm" want:">=0" zero:"off"`
	// recompute layers in the backward pass
	GradientCheckpointing bool `yaml:"gradient_checkpointing"`
	// what the graph computes in; master weights stay float32
	DType string `yaml:"dtype" want:"auto|float32|bfloat16"`
	// how AdamW's moments are kept, on xla: bfloat16 halves their memory; "": float32
	Moments string `yaml:"moments,omitempty" want:"|float32|bfloat16" words:"float32 or bfloat16"`
	// auto: as the model was stored
	SaveDType string `yaml:"save_dtype" want:"auto|float32|bfloat16|float16"`
	// one row holds the prompt once and every answer to it; "": there is one answer
	SharePrefix string `yaml:"share_prefix,omitempty" want:"|auto|on|off" words:"auto, on or off"`
	// a new seeded order every epoch; false: file order
	Shuffle bool `yaml:"shuffle"`
	// steps between metric lines
	LogEvery int `yaml:"log_every" want:">=1"`
	// steps between evaluations; 0: only at the end
	EvalEvery int `yaml:"eval_every" want:">=0"`
	// names the best checkpoint, such as eval_loss or eval_rewards/accuracies
	EvalMetric string `yaml:"eval_metric"`
	// steps between checkpoints; 0: only at the end and on interruption
	CheckpointEvery int `yaml:"checkpoint_every" want:">=0"`
	// most minutes without a checkpoint, beside the step or evaluation under way; 0: only by steps
	CheckpointMinutes float64 `yaml:"checkpoint_minutes" want:">=0" zero:"only by steps"`
	// how many of the newest are kept, beside the best weights
	CheckpointKeep int `yaml:"checkpoint_keep" want:">=1"`
}

// Rule is the optimiser's part of the options.
func (o Options) Rule() AdamW {
	return AdamW{Beta1: o.AdamBeta1, Beta2: o.AdamBeta2, Epsilon: o.AdamEpsilon, WeightDecay: o.WeightDecay,
		MaxNorm: o.MaxGradNorm, HalfMoments: o.Moments == "bfloat16"}
}

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
func Defaults() Options {
	return Options{
		Epochs: 1, Schedule: "linear", AdamBeta1: 0.9, AdamBeta2: 0.999, AdamEpsilon: 1e-8, MaxGradNorm: 1,
		DType: "auto", SaveDType: "auto", SharePrefix: "auto", Shuffle: true, LogEvery: 1, EvalMetric: "eval_loss",
		CheckpointEvery: 100, CheckpointMinutes: 2, // what a crash can cost, beside the step under way
		CheckpointKeep: 2,
	}
}
