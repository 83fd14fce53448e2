package main

import (
	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/recipe/pairs"
)

func newPairs(s streams) *cobra.Command {
	c := configured[pairs.Options]{spec: pairs.Spec, run: summary(pairs.Run)}
	return c.command(s, &cobra.Command{
		Use: "pairs", Short: "Sample n answers to each prompt: pair the best with the worst, or keep the good ones",
		Long: "Sample answers to prompts and write pairs as the MaPPO paper makes them: the best and the worst of n\n" +
			"answers. A prompt whose answers all score the same gives no pair. With --write demonstrations the\n" +
			"answers with a score of at least --min-score are written, which posttrain sft takes: rejection\n" +
			"sampling, also known as reward-filtered fine-tuning. Equal answers to a prompt count once.\n" +
			"With --input the prompts are those of a file, and --reward says who scores: a program (command), a\n" +
			"model on a server (judge) or a reward model (model), as in posttrain data score. Otherwise they are\n" +
			"contextual-integrity scenarios: synthetic ones, or those that a ci-rl run trains on, in the same\n" +
			"prompts, if --config names the run's config. Their score is the contextual-integrity reward, mapped to\n" +
			"[0,1] by (R+1)/2. With --templates no model is asked: templates write one ideal\n" +
			"answer from the annotation of each, which teaches a model the format that ci-rl needs.\n" +
			"Ctrl-C loses the answers under way; the same command continues.",
		Example: "  posttrain data pairs --model embedded --n 300 --held-out --out pairs.jsonl\n" +
			"  posttrain data pairs --model DIR --input prompts.jsonl --chat --answers 8 --reward model " +
			"--reward-model DIR --out pairs.jsonl --keep answers.jsonl\n" +
			"  posttrain data pairs --config configs/ci-rl-quickstart.yaml --write demonstrations --out good.jsonl\n" +
			"  posttrain data pairs --templates --config ci-rl.yaml --out format.jsonl",
	})
}
