package main

import (
	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/recipe/sft"
)

func newSFT(s streams) *cobra.Command {
	c := configured[sft.Options]{spec: sft.Spec, run: summary(sft.Run)}
	return sweepable(c, sft.Sweeps, s, &cobra.Command{
		Use:   "sft",
		Short: "Fine-tune on demonstrations: messages, prompt and completion, or text",
		Example: "  posttrain sft\n" +
			"  posttrain sft --model DIR --data chat.jsonl --set data.loss_on=all\n" +
			"  posttrain sft --resume runs/sft-20260102-150405",
	})
}
