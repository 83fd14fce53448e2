package main

import (
	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/eval/bench"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/recipe/synth"
)

func newSynth(s streams) *cobra.Command {
	c := configured[synth.Options]{spec: synth.Spec, flags: synthesisFlags, run: summary(synth.Run)}
	return c.command(s, &cobra.Command{
		Use:   "synth",
		Short: "Write contextual-integrity items, by a model or by templates, or demonstrations of the templates'",
		Long: "Write contextual-integrity items in three stages: seeds (scenario, domain, principle, with quotas),\n" +
			"vignettes (who writes to whom for which task, and which kinds of information fit it), items (the\n" +
			"information itself, with a keyword of each piece). --engine model asks a model on an OpenAI-compatible\n" +
			"server, --engine templates asks nobody. Gates then reject items that are useless for training. --out\n" +
			"is a folder: items.jsonl, rejected.jsonl with the reasons, summary.json and the model's replies. Ctrl-C\n" +
			"loses the questions under way; the same command continues, and asks nothing twice.\n" +
			"--form demonstrations, the default without a model, writes the templates' scenarios with answers into\n" +
			"the file --out (columns prompt and completion). With flaws the writer errs at the given rates.",
		Example: "  posttrain data synth --n 8000 --seed 1 --leak 0.1 --omit 0.1 --out demos.jsonl\n" +
			"  posttrain data synth --form items --n 100 --domains Healthcare=40,Family,Work --out runs/items\n" +
			"  posttrain data synth --base-url http://localhost:8000/v1 --api-model NAME --n 200 --out runs/items\n" +
			"  posttrain data synth --api-model gpt-4o --seeds seeds.json --out runs/items",
	})
}

var synthesisFlags = []config.Flag{
	{Name: "base-url", Key: "writer.base_url",
		Help: "OpenAI-compatible server of the model (default " + bench.DefaultBaseURL + ")"},
	{Name: "api-model", Key: "writer.model", Help: "the model's name on the server"},
	{Name: "api-key-env", Key: "writer.api_key_env",
		Help: "environment variable with the server's key (default " + bench.DefaultKeyEnv + ")"},
	{Name: "parallel", Key: "writer.parallel", Help: "requests that the server gets at the same time (default 8)"},
	{Name: "max-requests", Key: "writer.max_requests",
		Help: "budget: requests that this call may send (0 = no limit)"},
	{Name: "max-cost", Key: "writer.max_cost", Help: "budget: what this call's requests may cost (0 = no limit)"},
	{Name: "prompt-price", Key: "writer.prompt_price", Help: "price of a million tokens of prompts"},
	{Name: "completion-price", Key: "writer.completion_price", Help: "price of a million tokens of replies"},
}
