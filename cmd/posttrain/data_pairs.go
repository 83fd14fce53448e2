package main

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/recipe/best"
)

func newPairs(s streams) *cobra.Command {
	unknown := func(f config.Flag) bool { return !best.PairsSpec.HasKey(f.Key) }
	flags := slices.DeleteFunc(slices.Clone(bestFlags), unknown)
	c := configured[best.Options]{spec: best.PairsSpec, flags: flags, run: summary(best.Pairs)}
	return c.command(s, &cobra.Command{
		Use: "pairs", Short: "Sample n answers to each scenario and pair the best with the worst, with their rewards",
		Long: "Sample answers to synthetic scenarios and write pairs as the MaPPO paper makes them: the best and\n" +
			"the worst of n answers by the contextual-integrity reward, mapped to [0,1] by (R+1)/2. A scenario\n" +
			"whose answers all score the same gives no pair.",
		Example: "  posttrain data pairs --model embedded --n 300 --held-out --out pairs.jsonl",
	})
}
