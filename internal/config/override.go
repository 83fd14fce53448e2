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

// Flags are the flags of a command (CommandMappo, CommandSFT, CommandCIRL) beside --config and --set.
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
		{"seed", "seed", "seed of every random choice"},
		{"max-steps", "train.max_steps", "stop after this many updates, whatever the epochs; 0: run the epochs"},
	}
	schema := schemaFor(command)
	var flags []Flag
	for _, f := range all {
		if schema.has(f.Key) {
			flags = append(flags, f)
		}
	}
	return flags
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
