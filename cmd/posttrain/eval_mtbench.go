package main

import (
	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/recipe/mtbench"
)

func newEvalMTBench(s streams) *cobra.Command {
	c := configured[mtbench.Options]{spec: mtbench.Spec, flags: mtbenchFlags, run: summary(mtbench.Run)}
	return c.command(s, &cobra.Command{
		Use:   "mt-bench",
		Short: "Count judgements of MT-Bench: mean score by turn and category",
		Long: "Count a file of judgements as MT-Bench does: the mean of the scores, from 1 to 10, by model, turn and\n" +
			"category. Judgements without a score (-1) do not count. Intervals of 95 % are bootstraps over questions.",
		Example: "  posttrain eval mt-bench --judgments gpt-4_single.jsonl --questions question.jsonl --out counted",
	})
}

var mtbenchFlags = []config.Flag{
	{Name: "judgments", Key: "judgments", Help: "judgements: columns question_id, model, turn, score"},
	{Name: "questions", Key: "questions", Help: "questions, for the means by category: question.jsonl"},
	{Name: "out", Key: "out", Help: "folder to make, for summary.json and config.yaml"},
}
