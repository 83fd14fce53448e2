package cirl

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/grpo"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/recipe"
)

// Explain says in plain text what the configuration trains: the reward and the objective as formulas with their
// numbers, the training around them, and every option that is not the released one. Its lines end in \n.
func (o *Options) Explain() string {
	var s strings.Builder
	s.WriteString("objective: GRPO on the contextual-integrity reward\n")
	s.WriteString(o.explainReward() + o.explainAdvantage() + o.explainLoss() + o.explainKL())
	fmt.Fprintf(&s, "model: %s, backend %s, seed %d\n", o.Model, o.Backend, o.Seed)
	s.WriteString(o.Adapting.Explain() + o.Devices.Explain())
	fmt.Fprintf(&s, "data: %s\n", o.describeItems())
	fmt.Fprintf(&s, "rollouts: %s a step, %s each, at most %s, temperature %v%s\n",
		recipe.Count(o.GRPO.Prompts, "prompt"), recipe.Count(o.GRPO.GroupSize, "completion"),
		recipe.Count(o.Sampling.MaxNew, "token"), o.Sampling.Temperature, o.truncation()+o.describeSampler())
	fmt.Fprintf(&s, "validation: %s, at temperature %v; the best checkpoint by mean reward is the result\n",
		every(o.Validation.Every), o.Validation.Temperature)
	s.WriteString(o.describeTraining())
	s.WriteString(o.listDeviations())
	return s.String()
}

func (o *Options) explainReward() string {
	r := o.Reward
	format := "the tags must occur"
	if r.Format == "strict" {
		format = "one think block, then one answer block, and nothing else"
	}
	match := "as substrings"
	if r.Match == "word" {
		match = "as whole words"
	}
	return fmt.Sprintf("  R = %v·(required keywords in the answer)/(all required) - "+
		"%v·(restricted ones in it)/(all restricted), -1 on a broken format\n"+
		"  format: %s (%s); keywords are found %s, without regard to case\n",
		r.RequiredWeight, r.RestrictedWeight, r.Format, format, match)
}

func (o *Options) explainAdvantage() string {
	by := map[string]string{
		grpo.Sample:     fmt.Sprintf("/(std R + 1e-6), divisor %d", o.GRPO.GroupSize-1),
		grpo.Population: fmt.Sprintf("/(std R + 1e-6), divisor %d", o.GRPO.GroupSize),
	}[o.GRPO.Std]
	return fmt.Sprintf("  A = (R - mean R)%s, over the %d completions of a prompt; equal rewards give 0\n",
		by, o.GRPO.GroupSize)
}

// explainLoss is what is minimised.
func (o *Options) explainLoss() string {
	g := o.GRPO
	kl := ""
	if g.NeedsReference() {
		kl = fmt.Sprintf(" + %v·KL", g.KLCoef)
	}
	weights := map[string]string{
		grpo.TokenMean:   "the mean over all tokens of a minibatch",
		grpo.SeqMeanMean: "the mean over the completions of their tokens' mean",
		grpo.SeqMeanSum:  "the mean over the completions of their tokens' sum",
		grpo.SeqMeanConstant: fmt.Sprintf("the mean over the completions of their tokens' sum divided by %d",
			g.NormLength),
	}[g.Aggregation]
	ratio := "of each token"
	if g.RatioLevel == grpo.Sequence {
		ratio = "of each completion: exp of its tokens' mean log-ratio"
	}
	return fmt.Sprintf("  loss = %s of -min(ρ·A, clip(ρ, %.4g, %.4g)·A)%s\n"+
		"  ρ = π/π_old %s; π_old is the policy before the step's first update\n",
		weights, 1-g.ClipLow, 1+g.ClipHigh, kl, ratio)
}

func (o *Options) explainKL() string {
	if !o.GRPO.NeedsReference() {
		return "  no KL: no reference model\n"
	}
	form := map[string]string{grpo.K1: "-d", grpo.K2: "d²/2", grpo.K3: "exp(d) - d - 1"}[o.GRPO.KL]
	return fmt.Sprintf("  KL = %s (%s) with d = logπ_ref - logπ of each token; the reference is the model "+
		"before training\n", form, o.GRPO.KL)
}

func (o *Options) describeItems() string {
	d := o.Data
	from := d.Describe()
	if d.Scenarios > 0 {
		from = fmt.Sprintf("%d embedded scenarios", d.Scenarios)
	}
	prefill := ""
	if d.Prefill {
		prefill = `, which end with "<think>"`
	}
	limit := "of any length"
	if d.MaxPromptTokens > 0 {
		limit = fmt.Sprintf("of at most %s", recipe.Count(d.MaxPromptTokens, "token"))
	}
	if d.Items == ci.ReleasedItems {
		from += " (the items that the released preprocessing keeps)"
	}
	validation, test := describePart(d.Validation, d.ValidationFraction), describePart(d.Test, d.TestFraction)
	return fmt.Sprintf("%s, %s for validation and %s for the test; %s prompts%s, %s", from, validation, test, d.Prompt,
		prefill, limit)
}

func describePart(file string, share float64) string {
	if file != "" {
		return file
	}
	return fmt.Sprintf("a share of %v", share)
}

// truncation says how the draws are cut off.
func (o *Options) truncation() (text string) {
	s := o.Sampling
	if s.TopK > 0 {
		text += fmt.Sprintf(", top-k %d", s.TopK)
	}
	if s.TopP > 0 && s.TopP < 1 {
		text += fmt.Sprintf(", top-p %v", s.TopP)
	}
	if s.MinP > 0 {
		text += fmt.Sprintf(", min-p %v", s.MinP)
	}
	if len(s.Stop) > 0 {
		text += fmt.Sprintf(", stop at %q", s.Stop)
	}
	return text
}

// describeSampler says what draws the completions, where it is not this process with its usual cache.
func (o *Options) describeSampler() string {
	switch n := len(o.Rollout.URLs); {
	case o.Rollout.Engine != "":
		text := "; drawn by " + recipe.Count(n, "server")
		if k := o.Rollout.Ahead; k > 0 {
			text += fmt.Sprintf(" from the weights of %s before", recipe.Count(k, "step"))
		}
		if c := o.GRPO.ImportanceCap; c > 0 {
			text += fmt.Sprintf(", A of a token times min(π_old/π_server, %v)", c)
		}
		return text
	case o.Sampling.CacheGB > 0:
		return fmt.Sprintf("; a cache of at most %v GB", o.Sampling.CacheGB)
	}
	return ""
}

func every(steps int) string {
	switch steps {
	case 0:
		return "at the start and at the end"
	case 1:
		return "every step"
	}
	return fmt.Sprintf("every %d steps", steps)
}

func (o *Options) describeTraining() string {
	g := o.GRPO
	return recipe.DescribeTraining(o.Train, fmt.Sprintf(", %s a step on %d completions each",
		recipe.Count(g.Updates, "update"), g.Prompts/g.Updates*g.GroupSize))
}

// Deviations are the keys in which a run differs from the released one: Was is the released value, Now the run's. Keys
// that are left out change what is computed by rounding alone, or follow from another one that is listed.
func (o *Options) Deviations() []config.Change {
	mine := *o
	mine.Data.Items = cmp.Or(mine.Data.Items, ci.AllItems)
	all := slices.DeleteFunc(Spec.Departures(&mine), func(c config.Change) bool {
		switch c.Key {
		case "data.items":
			return o.Data.Train.Are(embedded.Name)
		case "train.dtype":
			return o.Train.DType == "auto"
		case "train.epochs":
			return o.Train.MaxSteps > 0
		case "grpo.kl_coef":
			return o.GRPO.KL == grpo.None
		}
		return false
	})
	if o.Data.Train.Are(embedded.Name) {
		all = append(all, config.Change{Key: "data.train", Was: "a file", Now: embedded.Name})
	}
	return all
}

// listDeviations prints the deviations, one a line.
func (o *Options) listDeviations() string {
	all := o.Deviations()
	if len(all) == 0 {
		return "no option deviates from the released run's\n"
	}
	var s strings.Builder
	s.WriteString("not as in the released run (configs/ci-rl.yaml):\n")
	for _, c := range all {
		fmt.Fprintf(&s, "  %s: %s (released: %s)\n", c.Key, c.Now, c.Was)
	}
	return s.String()
}
