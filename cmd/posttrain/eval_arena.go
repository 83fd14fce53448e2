package main

import (
	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/recipe/arena"
)

func newEvalArena(s streams) *cobra.Command {
	c := configured[arena.Options]{spec: arena.Spec, flags: arenaFlags, run: summary(arena.Run)}
	return c.command(s, &cobra.Command{
		Use:   "arena-hard",
		Short: "Count judgements of Arena-Hard v0.1: the score against the baseline, with its interval",
		Long: "Count a file of judgements as Arena-Hard does: verdicts of both orders, of which A>>B counts as\n" +
			"three wins, give the probability of a win against the baseline. The interval of 95 % is a bootstrap over\n" +
			"questions.",
		Example: "  posttrain eval arena-hard --judgments model.jsonl --out counted",
	})
}

var arenaFlags = []config.Flag{
	{Name: "judgments", Key: "judgments", Help: "judgements: columns question_id, model, games"},
	{Name: "rounds", Key: "rounds", Help: "rounds of the bootstrap (default 1000)"},
	{Name: "seed", Key: "seed", Help: "seed of the bootstrap"},
	{Name: "out", Key: "out", Help: "folder to make, for summary.json and config.yaml"},
}
