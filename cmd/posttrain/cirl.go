package main

import (
	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/recipe/cirl"
)

func newCIRL(s streams) *cobra.Command {
	place := func(o *cirl.Options) *recipe.Place { return &o.Place }
	c := configured[cirl.Options]{cirl.Spec, cirlFlags, place, summary(cirl.Run)}
	return c.sweepable(s, cirl.Sweep, &cobra.Command{
		Use:   "ci-rl",
		Short: "Teach contextual integrity by reinforcement learning (GRPO)",
		Long: "Teach a model to share what a task needs and to keep the rest to itself: GRPO on the\n" +
			"contextual-integrity reward, which counts required and restricted keywords in the model's answers. A\n" +
			"test split is measured before and after. Without flags it trains the embedded tiny model on embedded\n" +
			"scenarios; --data takes the released data set, or any file in its form.",
		Example: "  posttrain ci-rl\n" +
			"  posttrain ci-rl --config configs/ci-rl.yaml --model DIR --data dataset.json\n" +
			"  posttrain ci-rl --model DIR --data items.parquet --group-size 8 --kl none --max-steps 200\n" +
			"  posttrain ci-rl --sweep reward.restricted_weight=0.5,1,2 --out runs/sweep\n" +
			"  posttrain ci-rl --resume runs/ci-rl-20260102-150405",
	})
}

var cirlFlags = trainingFlags([]config.Flag{
	{Name: "prompt", Key: "data.prompt",
		Help: "form of the prompts: cot (CI-CoT: think about every piece of information), cot-short, plain, compact " +
			"(the embedded model's), or a template's file (docs/data.md)"},
	{Name: "prompts", Key: "grpo.prompts_per_step", Help: "number of prompts of a step"},
	{Name: "group-size", Key: "grpo.group_size",
		Help: "completions of each prompt, which are compared with each other"},
	{Name: "max-new-tokens", Key: "sampling.max_new_tokens", Help: "most tokens of a completion"},
	{Name: "temperature", Key: "sampling.temperature", Help: "temperature of the completions that are trained on"},
	{Name: "kl", Key: "grpo.kl", Help: "estimator of the distance to the model before training: none, k1, k2 or k3"},
	{Name: "kl-coef", Key: "grpo.kl_coef", Help: "weight of that distance in the loss"},
}...)
