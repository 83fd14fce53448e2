package main

import (
	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/recipe/synth"
	"github.com/posttrain/posttrain/rollout/remote"
)

func newSynth(s streams) *cobra.Command {
	c := configured[synth.Options]{spec: synth.Spec, flags: synthesisFlags, run: summary(synth.Run)}
	return c.command(s, &cobra.Command{
		Use:   "synth",
		Short: "Write contextual-integrity items by a model, or demonstrations of synthetic ones by templates",
		Long: "With --api-model a model on an OpenAI-compatible server writes contextual-integrity items in three\n" +
			"stages: seeds (scenario, domain, principle), vignettes (who writes to whom for which task, and which\n" +
			"kinds of information fit it), items (the information itself, with a keyword of each piece). Gates then\n" +
			"reject items that are useless for training. --out is a folder: items.jsonl, rejected.jsonl with the\n" +
			"reasons, summary.json and the model's replies. Ctrl-C loses the questions under way; the same command\n" +
			"continues, and asks nothing twice.\n" +
			"Without a model, templates write synthetic scenarios with answers into the file --out (columns prompt\n" +
			"and completion). With flaws the writer errs at the given rates.",
		Example: "  posttrain data synth --n 8000 --seed 1 --leak 0.1 --omit 0.1 --out demos.jsonl\n" +
			"  posttrain data synth --agent tools --model DIR --n 2000 --out episodes.jsonl\n" +
			"  posttrain data synth --base-url http://localhost:8000/v1 --api-model NAME --n 200 --out runs/items\n" +
			"  posttrain data synth --api-model gpt-4o --domains Healthcare,Family --out runs/items",
	})
}

var synthesisFlags = []config.Flag{
	{Name: "base-url", Key: "writer.base_url",
		Help: "OpenAI-compatible server of the model (default " + remote.DefaultBaseURL + ")"},
	{Name: "api-model", Key: "writer.model", Help: "the model's name on the server"},
	{Name: "api-key-env", Key: "writer.api_key_env",
		Help: "environment variable with the server's key (default " + remote.DefaultKeyEnv + ")"},
	{Name: "parallel", Key: "writer.parallel", Help: "requests that the server gets at the same time (default 8)"},
	{Name: "max-requests", Key: "writer.max_requests",
		Help: "budget: requests that this call may send (0 = no limit)"},
	{Name: "max-cost", Key: "writer.max_cost", Help: "budget: what this call's requests may cost (0 = no limit)"},
	{Name: "prompt-price", Key: "writer.prompt_price", Help: "price of a million tokens of prompts"},
	{Name: "completion-price", Key: "writer.completion_price", Help: "price of a million tokens of replies"},
}
