package rl

import (
	"fmt"

	"github.com/posttrain/posttrain/grpo"
	"github.com/posttrain/posttrain/recipe"
)

// Objective are the lines of an explanation about advantage, loss and KL.
func (s Settings) Objective() string { return s.advantage() + s.loss() + s.kl() }

func (s Settings) advantage() string {
	g := s.GRPO
	n, over := g.GroupSize, fmt.Sprintf("the %d completions of a prompt", g.GroupSize)
	switch g.Baseline {
	case grpo.LeaveOneOut:
		over = fmt.Sprintf("the %d other completions of a prompt", g.GroupSize-1)
	case grpo.OfBatch:
		n *= g.Prompts
		over = fmt.Sprintf("all %d completions of a step", n)
	}
	by := map[string]string{
		grpo.Sample:     fmt.Sprintf("/(std R + 1e-6), divisor %d", n-1),
		grpo.Population: fmt.Sprintf("/(std R + 1e-6), divisor %d", n),
		grpo.OfBatch:    "/(std of all R - mean R of a step + 1e-6)",
	}[g.Std]
	named := ""
	if g.Recipe != "" {
		named = fmt.Sprintf("  recipe %s, and what is given beside it\n", g.Recipe)
	}
	if g.InReward() {
		named += fmt.Sprintf("  R is less %v·KL\n", g.KLCoef)
	}
	return fmt.Sprintf("%s  A = (R - mean R)%s, over %s; equal rewards give 0\n", named, by, over)
}

// loss is what is minimised.
func (s Settings) loss() string {
	g := s.GRPO
	kl := ""
	if g.NeedsReference() && !g.InReward() {
		kl = fmt.Sprintf(" + %v·KL", g.KLCoef)
	}
	weights := map[string]string{
		grpo.TokenMean:   "the mean over all tokens of a minibatch",
		grpo.SeqMeanMean: "the mean over the completions of their tokens' mean",
		grpo.SeqMeanSum:  "the mean over the completions of their tokens' sum",
		grpo.SeqMeanConstant: fmt.Sprintf("the mean over the completions of their tokens' sum divided by %d",
			g.NormLength),
	}[g.Aggregation]
	ratio := map[string]string{grpo.Token: "of each token",
		grpo.Sequence: "of each completion: exp of its tokens' mean log-ratio",
		grpo.Whole:    "of each completion: exp of its tokens' summed log-ratios"}[g.RatioLevel]
	surrogate := fmt.Sprintf("-min(ρ·A, clip(ρ, %.6g, %.6g)·A)", 1-g.ClipLow, 1+g.ClipHigh)
	if g.Surrogate == grpo.CISPO {
		surrogate = fmt.Sprintf("-clip(ρ, %.6g, %.6g)·A·logπ, the clipped ratio without a gradient,", 1-g.ClipLow,
			1+g.ClipHigh)
	}
	clip := ""
	if g.Updates == 1 {
		clip = ", and there is one: ρ is 1, and the clip never acts"
	}
	return fmt.Sprintf("  loss = %s of %s%s\n  ρ = π/π_old %s; π_old is the policy before the step's first update%s\n",
		weights, surrogate, kl, ratio, clip)
}

func (s Settings) kl() string {
	if !s.GRPO.NeedsReference() {
		return "  no KL: no reference model\n"
	}
	if s.GRPO.InReward() {
		return "  KL = Σ (logπ - logπ_ref) of each completion (k1), of the policy that drew it; the reference is " +
			"the model before training\n"
	}
	form := map[string]string{grpo.K2: "d²/2", grpo.K3: "exp(d) - d - 1"}[s.GRPO.KL]
	of := "token"
	if s.GRPO.RatioLevel == grpo.Whole {
		of = "completion"
	}
	return fmt.Sprintf("  KL = %s (%s) with d = logπ_ref - logπ of each %s; the reference is the model "+
		"before training\n", form, s.GRPO.KL, of)
}

// DescribeTraining gives the lines of an explanation about rollouts and training.
func (s Settings) DescribeTraining() string {
	g, validation := s.GRPO, "at both ends"
	if n := s.Validation.Every; n > 0 {
		validation = "every " + recipe.Count(n, "step")
	}
	return fmt.Sprintf("rollouts: %s a step, %s each, at most %s, temperature %v; validation %s\n",
		recipe.Count(g.Prompts, "prompt"), recipe.Count(g.GroupSize, "completion"),
		recipe.Count(s.Sampling.MaxNew, "token"), s.Sampling.Temperature, validation) +
		recipe.DescribeTraining(s.Base.Train, fmt.Sprintf(", %s a step on %d completions each",
			recipe.Count(g.Updates, "update"), g.Prompts/g.Updates*g.GroupSize))
}
