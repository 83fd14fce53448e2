package main

import (
	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/recipe/sft"
)

func newSFT(s streams) *cobra.Command {
	return sweepable(s, sft.Sweeps, sft.Run, &cobra.Command{
		Use:   "sft",
		Short: "Fine-tune on demonstrations: messages, prompt and completion, or text",
		Example: "  posttrain sft\n" +
			"  posttrain sft --model DIR --data chat.jsonl --set data.loss_on=all\n" +
			"  posttrain sft --resume runs/sft-20260102-150405",
	})
}
