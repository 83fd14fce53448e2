package main

import (
	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/recipe/rewardmodel"
)

func newRewardModel(s streams) *cobra.Command {
	place := func(o *rewardmodel.Options) *recipe.Place { return &o.Place }
	c := configured[rewardmodel.Options]{rewardmodel.Spec, rewardModelFlags, place, summary(rewardmodel.Run)}
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

var rewardModelFlags = wholeModelFlags([]config.Flag{
	{Name: "score-columns", Key: "data.score_columns",
		Help: "two columns with the scores of chosen and rejected, such as a,b"},
	{Name: "margin", Key: "loss.margin",
		Help: "none, or scores: the chosen answer should win by the difference of the scores"},
}...)
