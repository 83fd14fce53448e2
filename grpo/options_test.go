package grpo

import (
	"math"
	"testing"

	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

func TestDefaultOptionsAreInOrder(t *testing.T) {
	o := DefaultOptions()
	expect.OK(t, fault.Err("grpo", o.Check()))
	if !o.NeedsReference() || o.NeedsOld() {
		t.Error("the released settings need a reference and, with one update, not the old policy")
	}
	o.Updates = 4
	if err := fault.Err("grpo", o.Check()); err != nil || !o.NeedsOld() {
		t.Error("4 updates need the old policy", err)
	}
	if o.KL, o.Updates = K1, 1; !o.NeedsReference() || !o.NeedsOld() || !o.InReward() {
		t.Error("KL in the reward needs the reference and the old policy")
	}
	o.KL = None
	if err := fault.Err("grpo", o.Check()); err != nil || o.NeedsReference() || o.NeedsOld() {
		t.Error("without KL the default coefficient does no harm, and nothing is needed", err)
	}
}

func TestOptionsSayWhatIsWrong(t *testing.T) {
	for want, spoil := range map[string]func(o *Options){
		"grpo.prompts_per_step 0: want a whole number, 1 or " +
			"more": func(o *Options) { o.Prompts = 0 },
		"grpo.updates_per_rollout 5: want a divisor of " +
			"prompts_per_step 32": func(o *Options) { o.Updates = 5 },
		"grpo.updates_per_rollout 0: want a whole number, 1 or " +
			"more": func(o *Options) { o.Updates = 0 },
		`grpo.std "sampled": want sample, population, batch or none`:                   func(o *Options) { o.Std = "sampled" },
		`grpo.ratio_level "word": want token, sequence or answer`:                      func(o *Options) { o.RatioLevel = "word" },
		`grpo.kl "k4": want none, k1, k2 or k3`:                                        func(o *Options) { o.KL = "k4" },
		"grpo.kl_coef 0: want a number above 0, or kl none":                            func(o *Options) { o.KLCoef = 0 },
		"grpo.kl_coef 0.5: kl none does not use it; remove it":                         func(o *Options) { o.KL, o.KLCoef = None, 0.5 },
		"grpo.clip_low 2: want a number above 0 and at most 1":                         func(o *Options) { o.ClipLow = 2 },
		`grpo.surrogate "cispo": it weighs tokens: want ratio_level token or sequence`: func(o *Options) { o.Surrogate, o.RatioLevel = CISPO, Whole },
		"grpo.clip_high NaN: want a number above 0":                                    func(o *Options) { o.ClipHigh = math.NaN() },
		"grpo.dynamic_sampling -1: want a whole number, 0 (off) or " +
			"more": func(o *Options) { o.DynamicSampling = -1 },
		"grpo.norm_length 0: want a length of 1 or more tokens for aggregation " +
			SeqMeanConstant: func(o *Options) { o.Aggregation = SeqMeanConstant },
		"grpo.norm_length 9: aggregation token-mean does not use it, only seq-mean-token-sum-norm does; " +
			"remove it": func(o *Options) { o.NormLength = 9 },
		`grpo.aggregation "mean": want token-mean, seq-mean-token-mean,` +
			` seq-mean-token-sum or seq-mean-token-sum-norm`: func(o *Options) { o.Aggregation = "mean" },
		`grpo.kl "k1": it is taken from the sum of the rewards, and combine each makes none: ` +
			`want k2 or k3`: func(o *Options) {
			o.KL, o.Combine = K1, EachReward
		},
		"grpo.group_size 1: want a whole number, 2 or more": func(o *Options) { o.GroupSize = 1 },
	} {
		o := DefaultOptions()
		spoil(&o)
		if err := fault.Err("grpo", o.Check()); err == nil || err.Error() != want {
			t.Errorf("error %v\nwant  %s", err, want)
		}
	}
	if faults := (Options{}).Check(); len(faults) < 8 {
		t.Errorf("empty options have %d faults: want all at once", len(faults))
	}
}
