package main

import (
	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/recipe/pairs"
)

func newPairs(s streams) *cobra.Command {
	c := configured[pairs.Options]{spec: pairs.Spec, flags: pairsFlags, run: summary(pairs.Run)}
	return c.command(s, &cobra.Command{
		Use: "pairs", Short: "Sample n answers to each prompt: pair the best with the worst, or keep the good ones",
		Long: "Sample answers to prompts and write pairs as the MaPPO paper makes them: the best and the worst of n\n" +
			"answers. A prompt whose answers all score the same gives no pair. With --write demonstrations the\n" +
			"answers with a score of at least --min-score are written, which posttrain sft takes: rejection\n" +
			"sampling, also known as reward-filtered fine-tuning. Equal answers to a prompt count once.\n" +
			"With --input the prompts are those of a file, and --reward says who scores: a program (command), a\n" +
			"model on a server (judge) or a reward model (model), as in posttrain data score. Otherwise they are\n" +
			"contextual-integrity scenarios: synthetic ones, items of --data, or those that a ci-rl run trains on,\n" +
			"in the same prompts, if --config names the run's config. Their score is the contextual-integrity\n" +
			"reward, mapped to [0,1] by (R+1)/2. With --templates no model is asked: templates write one ideal\n" +
			"answer from the annotation of each, which teaches a model the format that ci-rl needs.\n" +
			"Ctrl-C loses the answers under way; the same command continues.",
		Example: "  posttrain data pairs --model embedded --n 300 --held-out --out pairs.jsonl\n" +
			"  posttrain data pairs --model DIR --input prompts.jsonl --chat --answers 8 --reward model " +
			"--reward-model DIR --out pairs.jsonl --keep answers.parquet\n" +
			"  posttrain data pairs --config configs/ci-rl-quickstart.yaml --write demonstrations --out good.jsonl\n" +
			"  posttrain data pairs --templates --data dataset.json --prompt cot --out format.jsonl",
	})
}

var pairsFlags = []config.Flag{
	{Name: "input", Key: "input",
		Help: "prompts, .jsonl, .json or .parquet, or " + hubRows + ": column prompt (text or messages) or " +
			"messages"},
	{Name: "data", Key: "data", Help: "contextual-integrity items, .json, .jsonl or .parquet, or " + hubRows},
	{Name: "prompt", Key: "prompt",
		Help: "form of the items' prompts: compact, plain, cot, cot-short or a template's file (default: compact for " +
			"the embedded model, cot for others)"},
	{Name: "samples", Key: "answers", Help: "the same as --answers"},
	{Name: "format", Key: "reward.ci.format",
		Help: "format of an answer to an item: paper (the tags occur) or strict (one think block, one answer block, " +
			"nothing else) (default paper)"},
	{Name: "match", Key: "reward.ci.match", Help: "how keywords are found: substring or word (default substring)"},
	{Name: "out", Key: "out", Help: "file to write: .jsonl, .json or .parquet, each also with .gz"},
	{Name: "keep", Key: "keep",
		Help: "file to write all answers to, with their scores: all_generated_responses, all_rm_scores"},
	{Name: "max-new-tokens", Key: "max_new_tokens",
		Help: "most tokens of an answer (default 128; 256 with --input, 2048 with --data)"},
	{Name: "temperature", Key: "temperature", Help: "temperature of the draws (default 1)"},
}
