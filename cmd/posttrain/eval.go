package main

import (
	"github.com/posttrain/posttrain/internal/config/fault"

	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/reward"
	"github.com/posttrain/posttrain/rollout"
)

func newEval(s streams) *cobra.Command {
	return parent(&cobra.Command{
		Use: "eval", Short: "Measure a model",
		Example: "  posttrain eval ci --model DIR\n  posttrain eval privacylens",
	}, newEvalCI(s), newPrivacyLens(s))
}

// evalFlags choose what is measured on what.
type evalFlags struct {
	samplingFlags
	server           serverFlags
	config           string // of a ci-rl run, whose test split is measured
	path             string // items of a file; "": held-out synthetic scenarios
	split            string // of the file
	splitSeed        uint64
	validation, test float64 // fractions of the file's split
	cot, prefill     bool
	rule             reward.Options
	n, show          int // n 0: all of a file
	seed             uint64
	out              string
}

func newEvalCI(s streams) *cobra.Command {
	var f evalFlags
	cmd := &cobra.Command{
		Use: "ci", Short: "Measure contextual integrity: what a model shares that it should not, and what it should",
		Long: "Let a model answer contextual-integrity scenarios and count what it shares: integrity (nothing restricted), utility (everything\n" +
			"required), complete (both), each with its 95 % interval, by domain and by transmission principle; and how often its think block\n" +
			"names what its answer must not. The scenarios are held-out synthetic ones, or the test split of --data, which ci-rl with the same\n" +
			"seed and fractions never trains on. The model is a folder, or one that an OpenAI-compatible server has; the server's key is read\n" +
			"from the environment. An answer without the format counts for integrity, since it shares nothing that can be read, and not for utility.",
		Example: "  posttrain eval ci\n  posttrain eval ci --model runs/mappo-20260102-150405/model --n 500\n" +
			"  posttrain eval ci --model DIR --data dataset.json --cot --samples 4 --temperature 0.7 --out results\n" +
			"  posttrain eval ci --model DIR --config runs/ci-rl-20260102-150405/config.yaml\n" +
			"  posttrain eval ci --base-url http://localhost:8000/v1 --api-model NAME --data dataset.json --cot",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(cmd); err != nil {
				return err
			}
			items, err := f.scenarios(s, cmd.Flags().Changed)
			if err != nil {
				return err
			}
			return evalCI(cmd.Context(), s, f, items)
		},
	}
	f.register(cmd)
	return cmd
}

func (f *evalFlags) register(cmd *cobra.Command) {
	f.samplingFlags.register(cmd, 0)
	f.server.register(cmd)
	f.rule = reward.DefaultOptions()
	flags := cmd.Flags()
	flags.IntVar(&f.answers, "samples", 1, "answers to each scenario")
	flags.StringVar(&f.path, "data", "", "contextual-integrity items, .json, .jsonl or .parquet (default: held-out synthetic scenarios)")
	flags.StringVar(&f.config, "config", "", "config of a ci-rl run, such as the config.yaml in its folder: its test split, prompts, sampling of tests and reward")
	flags.StringVar(&f.split, "split", "test", "part of --data: test, validation, train or all, as ci-rl splits it with --split-seed for its seed")
	flags.Uint64Var(&f.splitSeed, "split-seed", 0, "seed of the split")
	flags.Float64Var(&f.validation, "validation-fraction", 0.09, "share of --data that the split gives to validation")
	flags.Float64Var(&f.test, "test-fraction", 0.10, "share of --data that the split gives to test")
	flags.BoolVar(&f.cot, "cot", false, "ask for CI-CoT reasoning; without it --data gives the plain task, the synthetic scenarios the short prompt of the embedded model")
	flags.BoolVar(&f.prefill, "prefill", false, "begin every answer with <think>, as ci-rl does (default: with --cot, but not with a server)")
	flags.StringVar(&f.rule.Format, "format", f.rule.Format, "of an answer: paper (the tags occur) or strict (one think block, one answer block, nothing else)")
	flags.StringVar(&f.rule.Match, "match", f.rule.Match, "of keywords: substring or word")
	flags.IntVar(&f.n, "n", 200, "synthetic scenarios; of --data the first n (default: all)")
	flags.IntVar(&f.show, "show", 0, "scenarios to print with their answers")
	flags.Uint64Var(&f.seed, "seed", 1000, "seed of synthetic scenarios and draws")
	flags.StringVar(&f.out, "out", "", "folder to make, for results.jsonl (every answer with its score) and summary.json")
}

// splits are what --split takes.
var splits = []string{"test", "validation", "train", "all"}

// check refuses what cannot be measured, and settles the defaults that depend on other flags.
func (f *evalFlags) check(cmd *cobra.Command) error {
	if f.answers < 1 {
		return usageError{fmt.Errorf("--samples %d: want 1 or more", f.answers)}
	}
	if err := f.samplingFlags.check(); err != nil {
		return err
	}
	given := cmd.Flags().Changed
	if err := f.applies(given); err != nil {
		return usageError{err}
	}
	if err := f.values(given); err != nil {
		return usageError{err}
	}
	f.settle(given)
	return checkNewFolder(f.out)
}

// values refuses values without meaning.
func (f *evalFlags) values(given func(string) bool) error {
	switch {
	case f.answers > 1 && f.Temperature == 0:
		return fmt.Errorf("--samples %d: at --temperature 0 all answers to a scenario are the same; add --temperature 0.7, say", f.answers)
	case f.n < 1:
		return fmt.Errorf("--n %d: want 1 or more", f.n)
	case f.show < 0:
		return fmt.Errorf("--show %d: want 0 or more", f.show)
	case given("data") && f.path == "":
		return errors.New("--data is empty: want a .json, .jsonl or .parquet file")
	case given("config") && f.config == "":
		return errors.New("--config is empty: want the config file of a ci-rl run")
	case given("out") && f.out == "":
		return errors.New("--out is empty: want a folder to make")
	case !slices.Contains(splits, f.split):
		return fmt.Errorf("--split %q: want test, validation, train or all", f.split)
	case !(f.validation >= 0 && f.test >= 0 && f.validation+f.test <= 1):
		return fmt.Errorf("--validation-fraction %v and --test-fraction %v: want numbers of 0 or more with a sum of 1 at most", f.validation, f.test)
	}
	if err := fault.Err("", f.rule.Check()); err != nil {
		return fmt.Errorf("--%w", err)
	}
	return f.server.check(given)
}

// ofRun are the flags whose values a ci-rl run's config has.
var ofRun = []string{"data", "n", "cot", "prefill", "format", "match", "split", "split-seed", "validation-fraction", "test-fraction"}

// applies refuses flags without effect.
func (f *evalFlags) applies(given func(string) bool) error {
	for _, name := range ofRun {
		if given("config") && given(name) {
			return fmt.Errorf("--%s: --config %s has that; remove one of the two flags", name, f.config)
		}
	}
	for _, name := range []string{"split", "split-seed", "validation-fraction", "test-fraction"} {
		if given(name) && !given("data") {
			return fmt.Errorf("--%s: only --data FILE is split", name)
		}
		if given(name) && name != "split" && f.split == "all" {
			return fmt.Errorf("--%s: --split all takes the whole file; remove one of the two flags", name)
		}
	}
	for _, name := range []string{"model", "backend", "prefill"} {
		if given(name) && given("base-url") {
			return fmt.Errorf("--%s: it is about a model in this process, --base-url about one that a server has; remove one of the two flags", name)
		}
	}
	return nil
}

// settle gives the flags that depend on others their defaults.
func (f *evalFlags) settle(given func(string) bool) {
	if f.path != "" && !given("n") {
		f.n = 0
	}
	switch {
	case f.config != "": // which has it
		return
	case f.cot:
		f.prompt = ci.PromptCoT
	case f.path == "":
		f.prompt = ci.PromptCompact
	default:
		f.prompt = ci.PromptPlain
	}
	if !given("prefill") {
		f.prefill = f.cot && f.server.url == ""
	}
}

// checkNewFolder refuses a folder that has something in it.
func checkNewFolder(dir string) error {
	if dir == "" {
		return nil
	}
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("--out %s: %w; want a folder to make", dir, errors.Unwrap(err))
	case len(entries) > 0:
		return fmt.Errorf("--out %s: the folder is not empty; name another", dir)
	}
	return nil
}

// serverFlags choose a model that a server has.
type serverFlags struct {
	url, model, keyName string
	parallel            int
	timeout             time.Duration
	opens               bool // its chat template opens the think block
}

func (f *serverFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.url, "base-url", "", "OpenAI-compatible server to ask instead of a model folder, such as http://localhost:8000/v1")
	flags.StringVar(&f.model, "api-model", "", "the model's name on the server")
	flags.StringVar(&f.keyName, "api-key-env", "OPENAI_API_KEY", "environment variable that holds the server's key; none is sent where it is not set")
	flags.IntVar(&f.parallel, "parallel", 8, "requests to the server at a time")
	flags.DurationVar(&f.timeout, "timeout", 5*time.Minute, "for a reply of the server; after it, and after passing failures, the request is sent again")
	flags.BoolVar(&f.opens, "think-opened", false, "the server's chat template opens the think block, so that answers begin inside it")
}

func (f *serverFlags) check(given func(string) bool) error {
	if !given("base-url") {
		for _, name := range []string{"api-model", "api-key-env", "parallel", "timeout", "think-opened"} {
			if given(name) {
				return fmt.Errorf("--%s: it is about a server; add --base-url URL", name)
			}
		}
		return nil
	}
	switch {
	case f.model == "":
		return errors.New("--base-url wants --api-model NAME beside it, the model's name on the server")
	case f.parallel < 1:
		return fmt.Errorf("--parallel %d: want 1 or more", f.parallel)
	case f.timeout <= 0:
		return fmt.Errorf("--timeout %v: want more than 0, such as 5m", f.timeout)
	case !fault.IsVariable(f.keyName): // it may be the key itself
		return errors.New("--api-key-env: want the name of an environment variable, such as OPENAI_API_KEY, not the key itself")
	case given("api-key-env") && os.Getenv(f.keyName) == "":
		return fmt.Errorf("--api-key-env %s: this environment variable is not set", f.keyName)
	}
	_, err := f.open(nil)
	return err
}

// open makes the client. It asks the server nothing.
func (f *serverFlags) open(tick func(done int)) (*rollout.Remote, error) {
	return rollout.NewRemote(rollout.RemoteOptions{
		BaseURL: f.url, Model: f.model, Key: os.Getenv(f.keyName), KeyName: f.keyName, Parallel: f.parallel, Timeout: f.timeout, Tick: tick,
	})
}
