package main

import (
	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/recipe/alpaca"
)

func newEvalAlpaca(s streams) *cobra.Command {
	c := configured[alpaca.Options]{spec: alpaca.Spec, flags: alpacaFlags, run: summary(alpaca.Run)}
	return c.command(s, &cobra.Command{
		Use:   "alpaca",
		Short: "Count judgements of AlpacaEval 2: win rate, standard error, length-controlled win rate",
		Long: "Count a file of judgements (annotations) as AlpacaEval 2 does. With the baseline's outputs, also the\n" +
			"length-controlled win rate: a regression that knows the difference of lengths, and how difficult the\n" +
			"instructions are, which the judgements of other models with published weights say.",
		Example: "  posttrain eval alpaca --annotations annotations.json --out counted\n" +
			"  posttrain eval alpaca --annotations annotations.json --baseline baseline.jsonl.gz " +
			"--others a.jsonl,b.jsonl --weights lc_weights.csv --leaderboard leaderboard.csv",
	})
}

var alpacaFlags = []config.Flag{
	{Name: "annotations", Key: "annotations",
		Help: "judgements: columns instruction, output_2, generator_2, preference"},
	{Name: "baseline", Key: "baseline", Help: "the baseline's outputs: columns instruction, output_1"},
	{Name: "others", Key: "others", Help: "files of other models' judgements, with commas between"},
	{Name: "weights", Key: "weights", Help: ".csv with the published weights of these models"},
	{Name: "leaderboard", Key: "leaderboard", Help: ".csv with published rows, to print beside"},
	{Name: "out", Key: "out", Help: "folder to make, for summary.json and config.yaml"},
}
