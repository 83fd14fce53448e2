package grpo

import "github.com/posttrain/posttrain/internal/config"

// recipes set what papers say of the objective; what is left is as [DefaultOptions]. Numbers of prompts and completions
// and learning rates are not theirs, nor are updates, but GSPO's, whose bounds are for them.
var recipes = map[string]func(o *Options){
	// Ahmadian et al. 2024, arXiv:2402.14740: whole answers, KL in the reward; with TRL's coefficient, since the paper
	// has one for each data set (0.03, 0.1).
	"rloo": func(o *Options) {
		o.Baseline, o.Std, o.RatioLevel, o.Aggregation = LeaveOneOut, None, Whole, SeqMeanMean
		o.KL, o.KLCoef = K1, 0.05
	},
	// Hu et al. 2025, arXiv:2501.03262: KL in the reward, advantages of the batch. The paper gives a token the KL of
	// what follows it; here it has its answer's.
	"reinforce++": func(o *Options) { o.Baseline, o.Std, o.KL, o.KLCoef = OfBatch, OfBatch, K1, 0.01 },
	// Liu et al. 2025, arXiv:2503.20783; norm_length is sampling.max_new_tokens.
	"dr-grpo": func(o *Options) { o.Std, o.Aggregation, o.KL = None, SeqMeanConstant, None },
	// MiniMax-M1, arXiv:2506.13585: no bound below. It does not say the one above, a ratio of 5 is TRL's and ScaleRL's
	// (arXiv:2510.13786).
	"cispo": func(o *Options) { o.Surrogate, o.ClipLow, o.ClipHigh, o.KL = CISPO, 1, 4, None },
	// Zheng et al. 2025, arXiv:2507.18071, section 5.1.
	"gspo": func(o *Options) {
		o.RatioLevel, o.Aggregation, o.ClipLow, o.ClipHigh = Sequence, SeqMeanMean, 3e-4, 4e-4
		o.KL, o.Updates = None, 4
	},
	// Yu et al. 2025, arXiv:2503.14476, but for the soft punishment of answers that are too long, which is a reward.
	"dapo": func(o *Options) { o.ClipHigh, o.DynamicSampling, o.MaskTruncated, o.KL = 0.28, 3, true, None },
}

// recipeKeys are what recipes set.
var recipeKeys = []string{"updates_per_rollout", "baseline", "std", "ratio_level", "surrogate", "aggregation",
	"norm_length", "clip_low", "clip_high", "kl", "kl_coef", "dynamic_sampling", "mask_truncated"}

// Defaults are the recipe's, where there is one. One from the command line is followed by what the command line gives,
// not by what a file says, which was written for another method.
func (o *Options) Defaults(g *config.Given) {
	set, is := recipes[g.Text("recipe")]
	if !is {
		return
	}
	set(o)
	for _, key := range recipeKeys {
		if g.FromCommandLine("recipe") && !g.FromCommandLine(key) {
			g.Drop(key)
		}
	}
}
