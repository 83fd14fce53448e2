package main

import (
	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/recipe/rl"
)

func newCIRL(s streams) *cobra.Command {
	return sweepable(s, rl.CISweeps, rl.RunCI, &cobra.Command{
		Use:   "ci-rl",
		Short: "Teach contextual integrity by reinforcement learning (GRPO)",
		Long: "Teach a model to share what a task needs and to keep the rest to itself: GRPO on the\n" +
			"contextual-integrity reward, which counts required and restricted keywords in the model's answers. A\n" +
			"test split is measured before and after. Without flags it trains the embedded tiny model on embedded\n" +
			"scenarios; --data takes the released data set, or any file in its form.",
		Example: "  posttrain ci-rl\n" +
			"  posttrain ci-rl --model DIR --data dataset.json\n" +
			"  posttrain ci-rl --model DIR --data items.parquet --group-size 8 --kl none --max-steps 200\n" +
			"  posttrain ci-rl --sweep reward.restricted_weight=0.5,1,2 --out runs/sweep\n" +
			"  posttrain ci-rl --resume runs/ci-rl-20260102-150405",
	})
}
