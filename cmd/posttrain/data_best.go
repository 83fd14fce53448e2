package main

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/recipe/best"
)

func newBest(s streams) *cobra.Command {
	c := configured[best.Options]{spec: best.Spec, flags: bestFlags, run: summary(best.Run)}
	return c.command(s, &cobra.Command{
		Use: "best", Short: "Sample n answers to each scenario and keep the good ones as demonstrations",
		Long: "Sample answers to contextual-integrity scenarios and write those with a reward of at least\n" +
			"--min-reward as demonstrations, which posttrain sft takes: rejection sampling, also known as\n" +
			"reward-filtered fine-tuning. Equal answers to a scenario count once. The scenarios are synthetic\n" +
			"ones, items of --data, or those that a ci-rl run trains on, in the same prompts, if --config names\n" +
			"the run's config. With --templates no model is asked: templates write one ideal answer from the\n" +
			"annotation of each scenario. They teach a model the format that ci-rl needs.",
		Example: "  posttrain data best --n 1000 --answers 8 --out good.jsonl\n" +
			"  posttrain data best --config configs/ci-rl-quickstart.yaml --out good.jsonl\n" +
			"  posttrain data best --templates --data dataset.json --prompt cot --out format.jsonl\n" +
			"  posttrain data best --model DIR --data dataset.json --max-new-tokens 1024 --min-reward 0.8 --out " +
			"good.jsonl",
	})
}

var bestFlags = slices.Concat(scenarioFlags("train"), []config.Flag{
	{Name: "seed", Key: "seed", Help: "seed of scenarios, orders and draws (default 1)"},
	{Name: "n", Key: "n", Help: "number of synthetic scenarios (default 300)"},
	{Name: "held-out", Key: "held_out", Help: "scenarios whose names and values training scenarios never have"},
	{Name: "out", Key: "out", Help: "file to write: .jsonl, .json or .parquet, each also with .gz"},
	{Name: "answers", Key: "answers", Help: "answers sampled for each scenario (default 8)"},
	{Name: "templates", Key: "templates",
		Help: "write the ideal answer to each scenario by templates, without a model"},
	{Name: "temperature", Key: "temperature",
		Help: "temperature of the draws; 0 always takes the likeliest token (default 1)"},
	{Name: "prompt", Key: "prompt",
		Help: "form of the prompt: compact, plain, cot, cot-short or a template's file (default: compact for the " +
			"embedded model, cot for others)"},
	{Name: "min-reward", Key: "min_reward",
		Help: "least reward of an answer that is kept, from -1 (everything) to 1 (all that is required, nothing " +
			"that is restricted) (default 1)"},
	{Name: "keep", Key: "keep", Help: "most answers kept of a scenario, the best first; 0 keeps all (default 0)"},
})
