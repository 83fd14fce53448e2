package main

import (
	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/recipe/rewardmodel"
)

func newRewardModel(s streams) *cobra.Command {
	c := configured[rewardmodel.Options]{spec: rewardmodel.Spec, run: summary(rewardmodel.Run)}
	return c.command(s, &cobra.Command{
		Use:   "reward-model",
		Short: "Train a reward model on preference pairs",
		Long: "Train a model that gives an answer a score: -log σ(r(chosen) - r(rejected)) on preference pairs\n" +
			"(Bradley and Terry), as TRL's RewardTrainer does. A language model gets a new head. The result is a\n" +
			"folder of transformers' class …ForSequenceClassification. Without flags it trains the embedded tiny\n" +
			"model on embedded pairs.",
		Example: "  posttrain reward-model\n" +
			"  posttrain reward-model --model DIR --data pairs.jsonl --out runs/rm\n" +
			"  posttrain data score --reward model --reward-model runs/rm/model --data pairs.jsonl --out scored.jsonl\n" +
			"  posttrain reward-model --resume runs/rm",
	})
}
