package train

// Options are the settings of a training loop, whatever its objective.
type Options struct {
	Epochs                int     `yaml:"epochs,omitempty"`       // passes over the training data; unused (0) where MaxSteps is above 0
	MaxSteps              int     `yaml:"max_steps"`              // stop after this many updates, whatever the epochs; 0: run the epochs
	BatchSize             int     `yaml:"batch_size"`             // examples (pairs, demonstrations) per update
	MicroBatchSize        int     `yaml:"micro_batch_size"`       // examples per forward; 0: the whole batch at once
	LearningRate          float64 `yaml:"learning_rate"`          // peak rate
	Schedule              string  `yaml:"schedule"`               // constant|linear|cosine, after the warm-up
	WarmupSteps           int     `yaml:"warmup_steps"`           // linear rise from 0
	WeightDecay           float64 `yaml:"weight_decay"`           // decoupled; norms and biases are exempt
	AdamBeta1             float64 `yaml:"adam_beta1"`             // first-moment decay
	AdamBeta2             float64 `yaml:"adam_beta2"`             // second-moment decay
	AdamEpsilon           float64 `yaml:"adam_epsilon"`           // added to the root of the second moment
	MaxGradNorm           float64 `yaml:"max_grad_norm"`          // global-norm clipping; 0: off
	GradientCheckpointing bool    `yaml:"gradient_checkpointing"` // recompute layers in the backward pass
	DType                 string  `yaml:"dtype"`                  // auto|float32|bfloat16: what the graph computes in; masters stay float32
	SaveDType             string  `yaml:"save_dtype"`             // auto (as the model was stored)|float32|bfloat16|float16
	SharePrefix           string  `yaml:"share_prefix,omitempty"` // auto|on|off: one row holds the prompt once and every answer to it; "": there is one answer
	Shuffle               bool    `yaml:"shuffle"`                // a new seeded order every epoch; false: file order
	LogEvery              int     `yaml:"log_every"`              // steps between metric lines
	EvalEvery             int     `yaml:"eval_every"`             // steps between evaluations; 0: only at the end
	EvalMetric            string  `yaml:"eval_metric"`            // names the best checkpoint, e.g. eval_loss or eval_rewards/accuracies
	CheckpointEvery       int     `yaml:"checkpoint_every"`       // steps between checkpoints; 0: only at the end and on interruption
	CheckpointKeep        int     `yaml:"checkpoint_keep"`        // last K kept, beside the best
}

// Rule is the optimiser's part of the options.
func (o Options) Rule() AdamW {
	return AdamW{Beta1: o.AdamBeta1, Beta2: o.AdamBeta2, Epsilon: o.AdamEpsilon, WeightDecay: o.WeightDecay, MaxNorm: o.MaxGradNorm}
}
