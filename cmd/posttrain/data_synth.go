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
			"is a folder: items.jsonl, rejected.jsonl with the reasons, summary.json, and each stage's rows. Ctrl-C\n" +
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
	{Name: "form", Key: "form",
		Help: "items or demonstrations (default: items with --api-model, else demonstrations)"},
	{Name: "engine", Key: "engine", Help: "who writes: model or templates (default: model with --api-model)"},
	{Name: "n", Key: "n", Help: "number of scenarios (default 4000); of items, number of seeds (default 200)"},
	{Name: "seed", Key: "seed",
		Help: "seed of the scenarios, of the order of their information and of the flaws (default 1)"},
	{Name: "held-out", Key: "held_out", Help: "make scenarios whose names and values training scenarios never have"},
	{Name: "out", Key: "out",
		Help: "of items a folder, a new one or one to continue; else a file: .jsonl, .json or .parquet, also .gz"},
	{Name: "leak", Key: "leak", Help: "probability that the writer takes a restricted attribute for a fitting one"},
	{Name: "omit", Key: "omit", Help: "probability that the writer takes a required attribute for an unfitting one"},
	{Name: "garble", Key: "garble", Help: "probability that the writer breaks the format"},
	{Name: "leak-habit", Key: "leak_habit",
		Help: "share of the norms about restricted attributes that the writer always gets wrong"},
	{Name: "omit-habit", Key: "omit_habit",
		Help: "share of the norms about required attributes that the writer always gets wrong"},
	{Name: "seeds", Key: "seeds", Help: "file of seeds in the release's form, in place of drawn ones; those with " +
		"information_type are vignettes already"},
	{Name: "domains", Key: "domains",
		Help: "domains of seeds, each with a quota (Finance=20) or without (default: the ten of the release)"},
	{Name: "principles", Key: "principles", Help: "principles of seeds, as --domains (default: Confidentiality, " +
		"Proportionality and Consent)"},
	{Name: "scenarios", Key: "scenarios", Help: "scenarios of seeds, as --domains (default: email and chat messages)"},
	{Name: "per-seed", Key: "per_seed", Help: "fewest and most vignettes of a seed (default 3,5)"},
	{Name: "prompts", Key: "prompts",
		Help: "folder of templates in place of the built-in ones: vignettes.tmpl, item.tmpl, repair.tmpl"},
	{Name: "base-url", Key: "writer.base_url",
		Help: "OpenAI-compatible server of the model (default " + bench.DefaultBaseURL + ")"},
	{Name: "api-model", Key: "writer.model", Help: "the model's name on the server"},
	{Name: "api-key-env", Key: "writer.api_key_env",
		Help: "environment variable with the server's key (default " + bench.DefaultKeyEnv + ")"},
	{Name: "temperature", Key: "writer.temperature", Help: "temperature of the model's draws (default 1)"},
	{Name: "parallel", Key: "writer.parallel", Help: "requests that the server gets at the same time (default 8)"},
	{Name: "max-requests", Key: "writer.max_requests",
		Help: "budget: requests that this call may send (0 = no limit)"},
	{Name: "max-cost", Key: "writer.max_cost", Help: "budget: what this call's requests may cost (0 = no limit)"},
	{Name: "prompt-price", Key: "writer.prompt_price", Help: "price of a million tokens of prompts"},
	{Name: "completion-price", Key: "writer.completion_price", Help: "price of a million tokens of replies"},
}
