package grpo

import (
	"slices"

	"github.com/posttrain/posttrain/internal/config/fault"
)

// What an advantage is divided by.
const (
	Sample     = "sample"     // the standard deviation with divisor G-1
	Population = "population" // with divisor G
)

// None is no division of advantages, and no KL.
const None = "none"

// The levels of the ratio.
const (
	Token    = "token"
	Sequence = "sequence"
)

// The aggregations; package grpo has their weights.
const (
	TokenMean       = "token-mean"
	SeqMeanMean     = "seq-mean-token-mean"
	SeqMeanSum      = "seq-mean-token-sum"
	SeqMeanConstant = "seq-mean-token-sum-norm"
)

// The estimators of KL.
const (
	K1 = "k1"
	K2 = "k2"
	K3 = "k3"
)

// Options are the settings of the method. Start from DefaultOptions.
type Options struct {
	// the prompts of a rollout batch
	Prompts int `yaml:"prompts_per_step" want:">=1"`
	// G, the answers to a prompt: the advantage of one is measured against the others
	GroupSize int `yaml:"group_size" want:">=2"`
	// optimiser updates per rollout batch, each on prompts/updates groups
	Updates int `yaml:"updates_per_rollout" want:">=1"`
	// what a reward less its group's mean is divided by
	Std        string `yaml:"std" want:"sample|population|none"`
	RatioLevel string `yaml:"ratio_level" want:"token|sequence"`
	// how the losses of tokens become one
	Aggregation string `yaml:"aggregation"`
	// seq-mean-token-sum-norm: the constant length in tokens
	NormLength int `yaml:"norm_length,omitempty" want:">=0"`
	// the ratio is clipped to 1-clip_low …
	ClipLow float64 `yaml:"clip_low" want:">0 <1"`
	// … and 1+clip_high
	ClipHigh float64 `yaml:"clip_high" want:">0"`
	KL       string  `yaml:"kl" want:"none|k1|k2|k3"`
	KLCoef   float64 `yaml:"kl_coef" want:">=0"` // β, the weight of KL
	// rounds in which groups of equal rewards are sampled anew
	DynamicSampling int `yaml:"dynamic_sampling" want:">=0" zero:"off"`
	// answers cut by the length limit do not train
	MaskTruncated bool `yaml:"mask_truncated"`
	// truncated importance sampling: a token's advantage times π_old/π_sampler, at most this; for samplers that round
	// otherwise than the trainer
	ImportanceCap float64 `yaml:"importance_cap,omitempty" want:">=0" zero:"off"`
}

// DefaultOptions are the released settings of CI-RL. Its script asks for minibatches of 128 prompts, of which a step
// has 32, so that a step makes one update.
func DefaultOptions() Options {
	return Options{Prompts: 32, GroupSize: 16, Updates: 1, Std: Sample, RatioLevel: Token, Aggregation: TokenMean,
		ClipLow: 0.2, ClipHigh: 0.2, KL: K3, KLCoef: 0.001}
}

// NeedsReference says that the objective needs the reference's log-probs.
func (o Options) NeedsReference() bool { return o.KL != None && o.KLCoef != 0 }

// NeedsOld says that the old policy's log-probs must be measured before the first update of a rollout batch.
func (o Options) NeedsOld() bool { return o.Updates > 1 || o.ImportanceCap > 0 }

// Check names every fault of the options.
func (o Options) Check() []fault.Fault {
	faults := fault.Check(o)
	if known := []string{TokenMean, SeqMeanMean, SeqMeanSum, SeqMeanConstant}; !slices.Contains(known, o.Aggregation) {
		faults.Add("aggregation", o.Aggregation, "want %s", fault.Or(known))
	}
	if o.Updates >= 1 && o.Prompts >= 1 && o.Prompts%o.Updates != 0 {
		faults.Add("updates_per_rollout", o.Updates, "want a divisor of prompts_per_step %d", o.Prompts)
	}
	switch constant := o.Aggregation == SeqMeanConstant; {
	case constant && o.NormLength == 0:
		faults.Add("norm_length", 0, "want a length of 1 or more tokens for aggregation %s", SeqMeanConstant)
	case !constant && o.NormLength > 0:
		faults.Add("norm_length", o.NormLength, "aggregation %s does not use it, only %s does; remove it",
			o.Aggregation, SeqMeanConstant)
	}
	switch {
	case o.KL != None && o.KLCoef == 0:
		faults.Add("kl_coef", 0, "want a number above 0, or kl none")
	case o.KL == None && o.KLCoef > 0 && o.KLCoef != DefaultOptions().KLCoef: // Resolved names the default
		faults.Add("kl_coef", o.KLCoef, "kl none does not use it; remove it")
	}
	return faults
}
