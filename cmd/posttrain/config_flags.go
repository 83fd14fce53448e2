package main

import (
	"github.com/posttrain/posttrain/eval/privacylens"
	"github.com/posttrain/posttrain/internal/config"
)

const modelHelp = "model folder in Hugging Face layout, or embedded"

const backendHelp = "auto, go, onnx, onnx:LIBRARY, xla, xla:cpu, xla:cuda or xla:PLUGIN"

// trainingFlags set the keys that every training command has.
func trainingFlags(own ...config.Flag) []config.Flag {
	return append([]config.Flag{
		{Name: "model", Key: "model", Help: "model folder in Hugging Face layout, or embedded"},
		{Name: "data", Key: "data.train", Help: "training data: .jsonl, .json or .parquet, also .gz, or embedded"},
		{Name: "backend", Key: "backend", Help: backendHelp},
		{Name: "seed", Key: "seed", Help: "seed of every random choice"},
		{Name: "max-steps", Key: "train.max_steps", Help: "stop after this many updates, whatever the epochs; 0: run " +
			"the epochs"},
	}, own...)
}

// privacyLensFlags are those of eval privacylens.
var privacyLensFlags = []config.Flag{
	{Name: "seed", Key: "seed", Help: "seed of every random choice"},
	{Name: "backend", Key: "agent.backend", Help: backendHelp},
	{Name: "data", Key: "data.cases", Help: "cases: a file (main_data.json), the folder that it is in, or embedded " +
		"(an example)"},
	{Name: "first", Key: "data.first", Help: "use only the first N cases (0 = all)"},
	{Name: "prompts", Key: "prompts", Help: "folder with templates in the place of the embedded ones (see the command " +
		"prompts)"},
	{Name: "model", Key: "agent.model", Help: "model under test: a folder in Hugging Face layout, or embedded"},
	{Name: "base-url", Key: "agent.base_url", Help: "OpenAI-compatible server of the model under test, such as " +
		"http://localhost:8000/v1"},
	{Name: "api-model", Key: "agent.api_model", Help: "the model's name on the server"},
	{Name: "api-key-env", Key: "agent.api_key_env", Help: "environment variable that holds the server's key (default " +
		privacylens.DefaultKeyEnv + ")"},
	{Name: "parallel", Key: "agent.parallel", Help: "requests to the server at a time (default 8)"},
	{Name: "timeout", Key: "agent.timeout", Help: "for a reply of the server (default 5m)"},
	{Name: "batch", Key: "agent.batch", Help: "cases that a model folder answers together (default 16)"},
	{Name: "actions", Key: "agent.actions", Help: "recorded actions in the place of a model: .csv, .jsonl, .json or " +
		".parquet with columns name and final_action"},
	{Name: "prompt", Key: "agent.prompt", Help: "how the model is asked: naive, enhanced (told to guard privacy) or " +
		"cot (CI-CoT) (default naive)"},
	{Name: "agent-prompts", Key: "agent.prompts", Help: "file of prompts in the place of the templates " +
		"(scripts/privacylens/export_prompts.py)"},
	{Name: "temperature", Key: "agent.temperature", Help: "of the actions' draws; 0: greedy (default 0.7)"},
	{Name: "max-new-tokens", Key: "agent.max_new_tokens",
		Help: "most tokens of an action, thoughts included (default 7000)"},
	{Name: "judge", Key: "judge.kind", Help: "model (a server's), keyword (a smoke test, never to be quoted) or " +
		"replay (recorded verdicts) (default model)"},
	{Name: "judge-base-url", Key: "judge.base_url", Help: "OpenAI-compatible server of the judge (default " +
		privacylens.DefaultBaseURL + ")"},
	{Name: "judge-model", Key: "judge.model", Help: "the judge's name on the server"},
	{Name: "judge-key-env", Key: "judge.api_key_env", Help: "environment variable that holds the judge's key " +
		"(default " + privacylens.DefaultKeyEnv + ")"},
	{Name: "judge-parallel", Key: "judge.parallel", Help: "requests to the judge at a time (default 8)"},
	{Name: "judge-timeout", Key: "judge.timeout", Help: "timeout of one request (default 1m)"},
	{Name: "judge-prompts", Key: "judge.prompts", Help: "file of prompts in the place of the templates " +
		"(scripts/privacylens/export_prompts.py)"},
	{Name: "judge-cache", Key: "judge.cache", Help: "file that keeps the judge's replies (default: in the run folder)"},
	{Name: "requests-per-minute", Key: "judge.requests_per_minute", Help: "limit of the judge's server; 0: none"},
	{Name: "tokens-per-minute", Key: "judge.tokens_per_minute",
		Help: "limit of the judge's server, prompts and replies together; 0: none"},
	{Name: "max-requests", Key: "judge.max_requests", Help: "budget: requests to the judge that this call may send; " +
		"0: no limit"},
	{Name: "max-cost", Key: "judge.max_cost", Help: "budget: what this call's requests to the judge may cost; 0: no " +
		"limit"},
	{Name: "prompt-price", Key: "judge.prompt_price", Help: "of a million tokens of the judge's prompts"},
	{Name: "completion-price", Key: "judge.completion_price", Help: "of a million tokens of the judge's replies"},
	{Name: "verdicts", Key: "judge.verdicts", Help: "recorded verdicts to replay, {name: {leak_info, secret_judgment: " +
		"[[item, bool], …]}}, or embedded"},
	{Name: "helpfulness", Key: "judge.helpfulness", Help: "recorded helpfulness to replay, {name: score}, or embedded"},
	{Name: "levels", Key: "probe.levels", Help: "of probing, separated by commas: seed, vignette, trajectory (default " +
		"all)"},
}
