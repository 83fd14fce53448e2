package cirl

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/grpo"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/recipe"
)

// Explain says in plain text what the configuration trains: the reward and the objective as formulas with their
// numbers, the training around them, and every option that is not the released one. Its lines end in \n.
func (o *Options) Explain() string {
	r, g := o.Reward, o.GRPO
	from := o.Data.Train.String()
	if o.Data.Scenarios > 0 {
		from = fmt.Sprintf("%d embedded scenarios", o.Data.Scenarios)
	}
	validation := "at both ends"
	if n := o.Validation.Every; n > 0 {
		validation = "every " + recipe.Count(n, "step")
	}
	return "objective: GRPO on the contextual-integrity reward\n" +
		fmt.Sprintf("  R = %v·(required keywords in the answer)/(all required) - %v·(restricted ones in it)/(all "+
			"restricted), -1 on a broken format\n", r.RequiredWeight, r.RestrictedWeight) +
		o.explainAdvantage() + o.explainLoss() + o.explainKL() +
		o.Base.Describe() +
		fmt.Sprintf("data: %s, %s for validation and %s for the test\n", from,
			cmp.Or(o.Data.Validation, fmt.Sprintf("a share of %v", o.Data.ValidationFraction)),
			cmp.Or(o.Data.Test, fmt.Sprintf("a share of %v", o.Data.TestFraction))) +
		fmt.Sprintf("rollouts: %s a step, %s each, at most %s, temperature %v; validation %s\n",
			recipe.Count(g.Prompts, "prompt"), recipe.Count(g.GroupSize, "completion"),
			recipe.Count(o.Sampling.MaxNew, "token"), o.Sampling.Temperature, validation) +
		recipe.DescribeTraining(o.Train, fmt.Sprintf(", %s a step on %d completions each",
			recipe.Count(g.Updates, "update"), g.Prompts/g.Updates*g.GroupSize)) + recipe.ListDeviations(o.Deviations(), "released", "released run's (configs/ci-rl.yaml)")
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
