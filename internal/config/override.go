package config

import (
	"fmt"
	"strings"
)

// An Override is a value from the command line, which wins over the file. An empty value takes the key back to its
// default, whatever the file says.
type Override struct {
	Flag  string // as the user wrote it, for messages: "--prior", "--set"
	Key   string // dotted: "loss.prior"
	Value string // text; a list has commas
}

// ParseSet reads the argument of --set: key=value.
func ParseSet(text string) (Override, error) {
	key, value, ok := strings.Cut(text, "=")
	if key = strings.TrimSpace(key); !ok || key == "" {
		return Override{}, fmt.Errorf("--set %s: want key=value, such as --set train.learning_rate=1e-6", text)
	}
	return Override{"--set", key, strings.TrimSpace(value)}, nil
}

// A Flag is a command line flag that stands for a key.
type Flag struct {
	Name string // without dashes: "prior"
	Key  string
	Help string
}

// Override is the flag with a value.
func (f Flag) Override(value string) Override { return Override{"--" + f.Name, f.Key, value} }

// Flags are the flags of a command (CommandMappo, CommandSFT, CommandCIRL, CommandPrivacyLens) beside --config and --set.
func Flags(command string) []Flag {
	all := []Flag{
		{"model", "model", "model folder in Hugging Face layout, or embedded"},
		{"reference", "reference", "folder of the reference model (default: the model before training)"},
		{"data", "data.train", "training data: .jsonl, .json or .parquet, also .gz, or embedded"},
		{"score-columns", "data.score_columns", "two columns with the scores of chosen and rejected, such as a,b"},
		{"loss", "loss.type", "dpo, ipo, simpo or cpo"},
		{"prior", "loss.prior", "mappo or none (the plain loss)"},
		{"prompt", "data.prompt", "form of the prompts: cot (think about every piece of information), plain, or compact (the embedded model's)"},
		{"prompts", "grpo.prompts_per_step", "prompts of a step"},
		{"group-size", "grpo.group_size", "completions of a prompt, which are compared with each other"},
		{"max-new-tokens", "sampling.max_new_tokens", "most tokens of a completion"},
		{"temperature", "sampling.temperature", "of the completions that are trained on"},
		{"kl", "grpo.kl", "estimator of the distance to the model before training: none, k1, k2 or k3"},
		{"kl-coef", "grpo.kl_coef", "weight of that distance"},
		{"backend", "backend", rules["backend"].accepts},
		{"backend", "agent.backend", rules["backend"].accepts},
		{"seed", "seed", "seed of every random choice"},
		{"max-steps", "train.max_steps", "stop after this many updates, whatever the epochs; 0: run the epochs"},
	}
	all = append(all, evaluationFlags...)
	schema := schemaFor(command)
	var flags []Flag
	for _, f := range all {
		if schema.has(f.Key) {
			flags = append(flags, f)
		}
	}
	return flags
}

// evaluationFlags are those of posttrain eval privacylens, beside what others have too.
var evaluationFlags = []Flag{
	{"data", "data.cases", "cases: a file (main_data.json), the folder that it is in, or embedded (an example)"},
	{"first", "data.first", "only the first so many cases; 0: all"},
	{"prompts", "prompts", "folder with templates in the place of the embedded ones (see the command prompts)"},
	{"model", "agent.model", "model under test: a folder in Hugging Face layout, or embedded"},
	{"base-url", "agent.base_url", "OpenAI-compatible server of the model under test, such as http://localhost:8000/v1"},
	{"api-model", "agent.api_model", "the model's name on the server"},
	{"api-key-env", "agent.api_key_env", "environment variable that holds the server's key (default " + DefaultKeyEnv + ")"},
	{"parallel", "agent.parallel", "requests to the server at a time (default 8)"},
	{"timeout", "agent.timeout", "for a reply of the server (default 5m)"},
	{"batch", "agent.batch", "cases that a model folder answers together (default 16)"},
	{"actions", "agent.actions", "recorded actions in the place of a model: .csv, .jsonl, .json or .parquet with columns name and final_action"},
	{"prompt", "agent.prompt", "how the model is asked: naive, enhanced (told to guard privacy) or cot (CI-CoT) (default naive)"},
	{"agent-prompts", "agent.prompts", "file of prompts in the place of the templates (scripts/privacylens/export_prompts.py)"},
	{"temperature", "agent.temperature", "of the actions' draws; 0: greedy (default 0.7)"},
	{"max-new-tokens", "agent.max_new_tokens", "most tokens of an action, thoughts included (default 7000)"},
	{"judge", "judge.kind", "model (a server's), keyword (a smoke test, never to be quoted) or replay (recorded verdicts) (default model)"},
	{"judge-base-url", "judge.base_url", "OpenAI-compatible server of the judge (default " + DefaultBaseURL + ")"},
	{"judge-model", "judge.model", "the judge's name on the server"},
	{"judge-key-env", "judge.api_key_env", "environment variable that holds the judge's key (default " + DefaultKeyEnv + ")"},
	{"judge-parallel", "judge.parallel", "requests to the judge at a time (default 8)"},
	{"judge-timeout", "judge.timeout", "of one try (default 1m)"},
	{"judge-prompts", "judge.prompts", "file of prompts in the place of the templates (scripts/privacylens/export_prompts.py)"},
	{"judge-cache", "judge.cache", "file that keeps the judge's replies (default: in the run folder)"},
	{"requests-per-minute", "judge.requests_per_minute", "limit of the judge's server; 0: none"},
	{"tokens-per-minute", "judge.tokens_per_minute", "limit of the judge's server, prompts and replies together; 0: none"},
	{"max-requests", "judge.max_requests", "budget: requests to the judge that this call may send; 0: no limit"},
	{"max-cost", "judge.max_cost", "budget: what this call's requests to the judge may cost; 0: no limit"},
	{"prompt-price", "judge.prompt_price", "of a million tokens of the judge's prompts"},
	{"completion-price", "judge.completion_price", "of a million tokens of the judge's replies"},
	{"verdicts", "judge.verdicts", "recorded verdicts to replay, {name: {leak_info, secret_judgment: [[item, bool], …]}}, or embedded"},
	{"helpfulness", "judge.helpfulness", "recorded helpfulness to replay, {name: score}, or embedded"},
	{"levels", "probe.levels", "of probing, separated by commas: seed, vignette, trajectory (default all)"},
}

// override puts the overrides in the place of what the file gives.
func (l *loader) override(overrides []Override) {
	for _, o := range overrides {
		fault := func(format string, args ...any) {
			l.faults = append(l.faults, Fault{o.Flag, fmt.Sprintf(format, args...), noLine})
		}
		switch {
		case l.schema.isSection(o.Key):
			fault("%s is a section: set one of its keys, such as %s.%s", o.Key, o.Key, l.schema.within(o.Key)[0])
		case o.Key == "command":
			fault("command cannot be set: it says which command the file is for")
		case !l.schema.has(o.Key):
			fault("%s", unknown(o.Key, l.schema))
		case o.Value == "":
			delete(l.given, o.Key)
		default:
			l.given[o.Key] = given{place: o.Flag, form: formRaw, text: o.Value}
		}
	}
}
