package main

import (
	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/recipe/rl"
)

func newGRPO(s streams) *cobra.Command {
	return sweepable(s, rl.Sweeps, rl.Run, &cobra.Command{
		Use:   "grpo",
		Short: "Train on the rewards of the model's own answers (GRPO), by any reward",
		Long: "Train a model on its own answers: it answers each prompt several times, a reward scores the answers,\n" +
			"and the model learns which were better than the others (GRPO, and its variants as options). The\n" +
			"reward is a program, which gets answers as lines of JSON and writes a number for each, a judge on a\n" +
			"server, a reward model, a function, or several of them with weights. A test split is measured before\n" +
			"and after.\n\n" +
			`A program reads a line for each answer, {"prompt": …, "response": …, "row": {…}}, row with the` + "\n" +
			`other columns of the data, and writes a line for each, in this order: a number, or {"score": number}.`,
		Example: "  posttrain grpo --model DIR --data prompts.jsonl --reward command --command \"python3 score.py\"\n" +
			"  posttrain grpo --model DIR --data prompts.jsonl --reward model --reward-model RM\n" +
			"  posttrain grpo --model DIR --data gsm8k.jsonl --reward exact,pattern --pattern '####' --weights 1,0.2\n" +
			"  posttrain grpo --model DIR --data prompts.jsonl --reward exact --set grpo.baseline=leave-one-out\n" +
			"  posttrain grpo --resume runs/grpo-20260102-150405",
	})
}
