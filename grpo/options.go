package grpo

import (
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/config/fault"
)

// What an advantage is divided by.
const (
	Sample     = "sample"     // the standard deviation with divisor G-1
	Population = "population" // with divisor G
)

// None is no division of advantages, and no KL.
const None = "none"

// What is taken from a reward; "" is the mean of its group.
const (
	LeaveOneOut = "leave-one-out"
	OfBatch     = "batch" // of the standard deviation, too
)

// EachReward normalises each of several rewards by itself; "" their sum.
const EachReward = "each"

// The levels of the ratio. Whole's ratio is the product over the answer's tokens, and its KL the whole answer's.
const (
	Token    = "token"
	Sequence = "sequence"
	Whole    = "answer"
)

// CISPO is the surrogate whose clipped ratio is a weight; "" is PPO's.
const CISPO = "cispo"

// The aggregations; package grpo has their weights.
const (
	TokenMean       = "token-mean"
	SeqMeanMean     = "seq-mean-token-mean"
	SeqMeanSum      = "seq-mean-token-sum"
	SeqMeanConstant = "seq-mean-token-sum-norm"
)

// The estimators of KL: k1 is taken from the reward, the others are terms of the loss.
const (
	K1 = "k1"
	K2 = "k2"
	K3 = "k3"
)

// Options are the settings of the method. Start from DefaultOptions.
type Options struct {
	Prompts   int `yaml:"prompts_per_step" want:">=1" default:"32" paper:"32" flag:"prompts" help:"prompts of a rollout batch"`
	GroupSize int `yaml:"group_size" want:">=2" default:"16" paper:"16" flag:"group-size" help:"completions of a prompt, which are compared with each other"`
	Updates   int `yaml:"updates_per_rollout" want:">=1" default:"1" paper:"1" help:"optimiser updates per rollout batch, each on prompts/updates groups"`

	Recipe      string `yaml:"recipe,omitempty" want:"|rloo|reinforce++|dr-grpo|cispo|gspo|dapo" words:"rloo, reinforce++, dr-grpo, cispo, gspo or dapo" flag:"recipe" help:"a paper's method, which sets the keys of this section that are not given: rloo, reinforce++, dr-grpo, cispo, gspo or dapo"`
	Baseline    string `yaml:"baseline,omitempty" want:"|group|leave-one-out|batch" words:"group, leave-one-out or batch" paper:"" help:"mean that is taken from a reward (group): of its group, of the group's other rewards (RLOO), or of the batch (REINFORCE++)"`
	Std         string `yaml:"std" want:"sample|population|batch|none" default:"sample" paper:"sample" help:"standard deviation that this is divided by: of the rewards that the baseline is of, with divisor n-1 or n (sample, population), of the whole batch's differences (batch), or none"`
	Combine     string `yaml:"combine,omitempty" want:"|sum|each" words:"sum or each" help:"of several rewards: their sum is normalised (sum), or each by itself"`
	RatioLevel  string `yaml:"ratio_level" want:"token|sequence|answer" default:"token" paper:"token" help:"ratio of each token; the completion's geometric mean; or ratio and KL of the whole completion"`
	Surrogate   string `yaml:"surrogate,omitempty" want:"|ppo|cispo" words:"ppo or cispo" paper:"" help:"what is clipped: the objective (ppo), or the ratio as a weight of log π (cispo)"`
	Aggregation string `yaml:"aggregation" want:"token-mean|seq-mean-token-mean|seq-mean-token-sum|seq-mean-token-sum-norm" default:"token-mean" paper:"token-mean" help:"how the losses of tokens become one"`
	NormLength  int    `yaml:"norm_length,omitempty" want:">=0" help:"seq-mean-token-sum-norm: the constant length in tokens"`

	ClipLow  float64 `yaml:"clip_low" want:">0 <=1" default:"0.2" paper:"0.2" help:"the ratio is clipped to 1-clip_low …"`
	ClipHigh float64 `yaml:"clip_high" want:">0" default:"0.2" paper:"0.2" help:"… and 1+clip_high"`
	KL       string  `yaml:"kl" want:"none|k1|k2|k3" default:"k3" paper:"k3" flag:"kl" help:"estimator of the distance to the model before training, which is taken from the reward (k1) or added to the loss (k2, k3):"`
	KLCoef   float64 `yaml:"kl_coef" want:">=0" default:"0.001" paper:"0.001" flag:"kl-coef" help:"β, the weight of that distance"`

	DynamicSampling int     `yaml:"dynamic_sampling" want:">=0" zero:"off" paper:"0" help:"rounds in which groups of equal rewards are sampled anew; 0: off"`
	MaskTruncated   bool    `yaml:"mask_truncated" paper:"false" help:"completions that the length limit cuts do not train"`
	ImportanceCap   float64 `yaml:"importance_cap,omitempty" want:">=0" zero:"off" help:"most by which π_old/π_sampler scales a token's advantage; 0: off"`
}

// DefaultOptions are the released settings of CI-RL. Its script asks for minibatches of 128 prompts, of which a step
// has 32, so that a step makes one update.
func DefaultOptions() Options { return config.Default[Options]() }

// Resolve writes the forms of GRPO that keys have by default as "", however they are given.
func (o *Options) Resolve(*config.Given) {
	for key, usual := range map[*string]string{&o.Baseline: "group", &o.Combine: "sum", &o.Surrogate: "ppo"} {
		if *key == usual {
			*key = ""
		}
	}
}

// NeedsReference says that the objective needs the reference's log-probs.
func (o Options) NeedsReference() bool { return o.KL != None && o.KLCoef != 0 }

// NeedsOld says that the old policy's log-probs must be measured before the first update of a rollout batch.
func (o Options) NeedsOld() bool { return o.Updates > 1 || o.ImportanceCap > 0 || o.InReward() }

// InReward says that KL is taken from the reward. As a term of the loss k1 has the gradient of log π alone, in which
// the reference does not occur, and would hold nothing.
func (o Options) InReward() bool { return o.NeedsReference() && o.KL == K1 }

// inLoss says that KL is a term of the loss.
func (o Options) inLoss() bool { return o.NeedsReference() && o.KL != K1 }

// Check names every fault of the options.
func (o Options) Check() []fault.Fault {
	faults := fault.Faults(fault.Check(o))
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
	if o.Surrogate == CISPO && o.RatioLevel == Whole {
		faults.Add("surrogate", o.Surrogate, "it weighs tokens: want ratio_level token or sequence")
	}
	switch {
	case o.KL == K1 && o.Combine == EachReward:
		faults.Add("kl", o.KL, "it is taken from the sum of the rewards, and combine %s makes none: want k2 or k3",
			o.Combine)
	case o.KL != None && o.KLCoef == 0:
		faults.Add("kl_coef", 0, "want a number above 0, or kl none")
	case o.KL == None && o.KLCoef > 0 && o.KLCoef != DefaultOptions().KLCoef: // Resolved names the default
		faults.Add("kl_coef", o.KLCoef, "kl none does not use it; remove it")
	}
	return faults
}
