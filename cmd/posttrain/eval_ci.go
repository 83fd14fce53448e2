package main

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe/evalci"
)

func newEvalCI(s streams) *cobra.Command {
	out := ""
	c := configured[evalci.Options]{spec: evalci.Spec, flags: evalCIFlags}
	c.run = func(ctx context.Context, o evalci.Options, r run.Reporter) (string, error) {
		o.Out = out
		result, err := evalci.Run(ctx, o, r)
		if result == nil {
			return "", err
		}
		return result.String(), err // what was measured is printed even if its files cannot be written
	}
	cmd := c.command(s, &cobra.Command{
		Use: "ci", Short: "Measure contextual integrity: what a model shares that it should not, and what it should",
		Long: "Let a model answer contextual-integrity scenarios and count what it shares: integrity (nothing\n" +
			"restricted), utility (everything required) and complete (both), each with its 95 % interval, by\n" +
			"domain and by transmission principle; and how often its think block names what its answer must not.\n" +
			"The scenarios are held-out synthetic ones, or the test split of --data, which ci-rl with the same\n" +
			"seed and fractions never trains on. --config takes a config of this command, or that of a ci-rl run,\n" +
			"whose test split is measured. The model is a folder, or a server's; the server's key is read from\n" +
			"the environment. An answer without the format counts for integrity, because it shares nothing that\n" +
			"can be read, and not for utility.",
		Example: "  posttrain eval ci\n  posttrain eval ci --model runs/mappo-20260102-150405/model --n 500\n" +
			"  posttrain eval ci --model DIR --data dataset.json --cot --samples 4 --temperature 0.7 --out results\n" +
			"  posttrain eval ci --model DIR --config runs/ci-rl-20260102-150405/config.yaml\n" +
			"  posttrain eval ci --model DIR --data dataset.json --items released --cot --published\n" +
			"  posttrain eval ci --base-url http://localhost:8000/v1 --api-model NAME --data dataset.json --cot",
	})
	cmd.Flags().StringVar(&out, "out", "",
		"folder to make, for results.jsonl (every answer with its score), summary.json and config.yaml")
	return cmd
}

// scenarioFlags choose scenarios, prompts and rewards; part is the part of --data that is taken by default.
func scenarioFlags(part string) []config.Flag {
	return []config.Flag{
		{Name: "max-new-tokens", Key: "max_new_tokens",
			Help: "most tokens of an answer (default 128; 2048 with --data)"},
		{Name: "data", Key: "data",
			Help: "contextual-integrity items, .json, .jsonl or .parquet, or " + hubRows +
				" (default: synthetic scenarios)"},
		{Name: "items", Key: "items",
			Help: "items of --data: all, or released, without those that the released preprocessing drops (default all)"},
		{Name: "split", Key: "split",
			Help: "part of --data: test, validation, train or all, as ci-rl splits it with --split-seed for its seed " +
				"(default " + part + ")"},
		{Name: "split-seed", Key: "split_seed", Help: "seed of the split (default 0)"},
		{Name: "validation-fraction", Key: "validation_fraction",
			Help: "share of --data that the split gives to validation (default 0.09)"},
		{Name: "test-fraction", Key: "test_fraction",
			Help: "share of --data that the split gives to test (default 0.1)"},
		{Name: "format", Key: "reward.format",
			Help: "format of an answer: paper (the tags occur) or strict (one think block, one answer block, nothing " +
				"else) (default paper)"},
		{Name: "match", Key: "reward.match", Help: "how keywords are found: substring or word (default substring)"},
	}
}

var evalCIFlags = slices.Concat(scenarioFlags("test"), []config.Flag{
	{Name: "seed", Key: "seed", Help: "seed of synthetic scenarios and draws (default 1000)"},
	{Name: "n", Key: "n", Help: "number of synthetic scenarios (default 200); of --data the first n (default all)"},
	{Name: "samples", Key: "samples", Help: "answers to each scenario (default 1)"},
	{Name: "temperature", Key: "temperature",
		Help: "temperature of the draws; 0 always takes the likeliest token (default 0)"},
	{Name: "prompt", Key: "prompt",
		Help: "form of the prompts: compact, plain, cot, cot-short or a template's file (default plain for --data, " +
			"else compact)"},
	{Name: "cot", Key: "prompt", Value: "cot", Help: "ask for CI-CoT reasoning: --prompt cot"},
	{Name: "prefill", Key: "prefill",
		Help: "begin every answer with <think>, as ci-rl does (default: unless compact or plain; of a server only " +
			"with --continue)"},
	{Name: "show", Key: "show", Help: "scenarios to print with their answers (default 0)"},
	{Name: "published", Key: "published",
		Help: "print the figures of the CI-RL paper's six models beside (needs --data, or a run on items of a file)"},
	{Name: "base-url", Key: "server.base_url",
		Help: "OpenAI-compatible server to ask instead of a model folder, such as http://localhost:8000/v1"},
	{Name: "api-model", Key: "server.api_model", Help: "the model's name on the server"},
	{Name: "api-key-env", Key: "server.api_key_env",
		Help: "environment variable that holds the server's key; without it no key is sent (default OPENAI_API_KEY)"},
	{Name: "parallel", Key: "server.parallel", Help: "requests to the server at a time (default 8)"},
	{Name: "timeout", Key: "server.timeout",
		Help: "timeout of one request; after it, and after passing failures, the request is sent again (default 5m)"},
	{Name: "api-version", Key: "server.api_version", Help: apiVersionHelp},
	{Name: "continue", Key: "server.continue", Help: continueHelp},
	{Name: "think-opened", Key: "server.think_opened",
		Help: "the server's chat template opens the think block, so that answers begin inside it"},
})

const (
	apiVersionHelp = "version of Azure OpenAI's API, such as 2024-10-21: the server is an Azure resource, the " +
		"model's name that of a deployment"
	continueHelp = "vllm: the server continues the beginning of an answer (vLLM, SGLang), so that it can be <think>"
)
