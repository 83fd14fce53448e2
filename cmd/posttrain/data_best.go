package main

import (
	"github.com/posttrain/posttrain/embedded"
	cirlrecipe "github.com/posttrain/posttrain/recipe/cirl"

	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/reward"
	"github.com/posttrain/posttrain/run"
)

// bestFlags choose scenarios and which of the answers to them are worth imitating.
type bestFlags struct {
	synthFlags
	samplingFlags
	config           string // of ci-rl, whose training scenarios are taken
	path             string // items of a file; "" makes scenarios
	split            string // of the file
	splitSeed        uint64
	validation, test float64 // fractions of the file's split
	prefill          bool
	maxPrompt        int // tokens; 0: what the model takes
	rule             reward.Options
	minReward        float64
	keep             int // answers of a scenario; 0: all
}

func newBest(s streams) *cobra.Command {
	var f bestFlags
	cmd := &cobra.Command{
		Use: "best", Short: "Sample n answers to each scenario and keep the good ones as demonstrations",
		Long: "Sample answers to contextual-integrity scenarios and write those with a reward of at least --min-reward as demonstrations, which\n" +
			"posttrain sft takes: rejection sampling, also known as reward-filtered fine-tuning. Equal answers to a scenario count once.\n" +
			"The scenarios are synthetic ones, items of --data, or those that ci-rl trains on with --config, in the same prompts.",
		Example: "  posttrain data best --n 1000 --answers 8 --out good.jsonl\n" +
			"  posttrain data best --config configs/ci-rl-quickstart.yaml --out good.jsonl\n" +
			"  posttrain data best --model DIR --data dataset.json --max-new-tokens 1024 --min-reward 0.8 --out good.jsonl",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(cmd); err != nil {
				return err
			}
			return makeBest(cmd.Context(), s, f, cmd.Flags().Changed)
		},
	}
	f.register(cmd)
	return cmd
}

func (f *bestFlags) register(cmd *cobra.Command) {
	f.synthFlags.register(cmd, 300)
	f.samplingFlags.register(cmd, 1)
	f.rule = reward.DefaultOptions()
	flags := cmd.Flags()
	flags.IntVar(&f.answers, "answers", 8, "answers sampled for each scenario")
	flags.Float64Var(&f.minReward, "min-reward", 1, "least reward of an answer that is kept, from -1 (everything) to 1 (all that is required, nothing that is restricted)")
	flags.IntVar(&f.keep, "keep", 0, "most answers kept of a scenario, the best first; 0 keeps all")
	flags.StringVar(&f.config, "config", "", "config of a ci-rl run, such as the config.yaml in its folder: model, training scenarios, prompts, sampling and reward as it has them")
	flags.StringVar(&f.path, "data", "", "contextual-integrity items to answer, .json, .jsonl or .parquet (default: synthetic scenarios)")
	flags.StringVar(&f.split, "split", "train", "part of --data: train, validation, test or all, as ci-rl splits it with --split-seed for its seed")
	flags.Uint64Var(&f.splitSeed, "split-seed", 0, "seed of the split")
	flags.Float64Var(&f.validation, "validation-fraction", 0.09, "share of --data that the split gives to validation")
	flags.Float64Var(&f.test, "test-fraction", 0.10, "share of --data that the split gives to test")
	flags.StringVar(&f.prompt, "prompt", "", "form of the prompt: compact, plain or cot (default: compact for the embedded model, cot for others)")
	flags.StringVar(&f.rule.Format, "format", f.rule.Format, "of an answer: paper (the tags occur) or strict (one think block, one answer block, nothing else)")
	flags.StringVar(&f.rule.Match, "match", f.rule.Match, "of keywords: substring or word")
}

// check refuses what cannot be made, and settles the defaults that depend on other flags.
func (f *bestFlags) check(cmd *cobra.Command) error {
	if err := f.synthFlags.check(cmd.CommandPath()); err != nil {
		return err
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
	if f.prompt == "" {
		f.prompt = ci.PromptCoT
		if f.model == embedded.Name {
			f.prompt = ci.PromptCompact
		}
	}
	f.prefill = f.prompt == ci.PromptCoT
	return nil
}

// values refuses values without meaning.
func (f *bestFlags) values(given func(string) bool) error {
	switch {
	case !(f.minReward >= -1 && f.minReward <= 1):
		return fmt.Errorf("--min-reward %v: want a number from -1 to 1", f.minReward)
	case f.keep < 0:
		return fmt.Errorf("--keep %d: want 1 or more, or 0 for all", f.keep)
	case given("data") && f.path == "":
		return errors.New("--data is empty: want a .json, .jsonl or .parquet file")
	case given("config") && f.config == "":
		return errors.New("--config is empty: want the config file of a ci-rl run")
	case !slices.Contains([]string{"train", "validation", "test", "all"}, f.split):
		return fmt.Errorf("--split %q: want train, validation, test or all", f.split)
	case !(f.validation >= 0 && f.test >= 0 && f.validation+f.test <= 1):
		return fmt.Errorf("--validation-fraction %v and --test-fraction %v: want numbers of 0 or more with a sum of 1 at most", f.validation, f.test)
	}
	err := fault.Err("", f.rule.Check())
	if err == nil && given("prompt") {
		err = ci.CheckPrompt(f.prompt)
	}
	if err != nil {
		return fmt.Errorf("--%w", err)
	}
	return nil
}

// applies refuses flags without effect.
func (f *bestFlags) applies(given func(string) bool) error {
	ofSplit := []string{"split", "split-seed", "validation-fraction", "test-fraction"}
	for _, name := range append([]string{"n", "held-out", "data", "prompt", "format", "match"}, ofSplit...) {
		if given("config") && given(name) {
			return fmt.Errorf("--%s: --config %s has that; remove one of the two flags", name, f.config)
		}
	}
	for _, name := range []string{"n", "held-out"} {
		if given("data") && given(name) {
			return fmt.Errorf("--%s: it is about synthetic scenarios, and --data %s has its own; remove one of the two flags", name, f.path)
		}
	}
	for _, name := range ofSplit {
		if given(name) && !given("data") {
			return fmt.Errorf("--%s: only --data FILE is split; for the training scenarios of ci-rl use --config", name)
		}
		if given(name) && name != "split" && f.split == "all" {
			return fmt.Errorf("--%s: --split all takes the whole file; remove one of the two flags", name)
		}
	}
	return nil
}

// follow takes from the config of a ci-rl run what the command line does not say, and returns its training scenarios
// with the order of each prompt.
func (f *bestFlags) follow(s streams, given func(string) bool) ([]ci.Item, func(i int) uint64, error) {
	c, err := cirlrecipe.Spec.Load(config.Input{Path: f.config})
	if err != nil {
		return nil, nil, err
	}
	take(given("model"), &f.model, c.Model)
	take(given("backend"), &f.backend, c.Backend)
	f.samplingFlags.follow(c.Sampling, given)
	f.prompt, f.prefill, f.rule, f.maxPrompt = c.Data.Prompt, c.Data.Prefill, c.Reward, c.Data.MaxPromptTokens
	parts, err := c.Items(run.NewReporter(s.err, s.terminal, false))
	return parts[0], trainingOrder(c.Seed), err
}

// take gives a flag that was not set another value.
func take[T any](given bool, flag *T, value T) {
	if !given {
		*flag = value
	}
}

// trainingOrder is the order of attributes in the prompt of ci-rl's training item i.
func trainingOrder(seed uint64) func(i int) uint64 {
	return func(i int) uint64 { return ci.Order(seed, ci.Train, i) }
}

// scenarios are the items to answer, and the order of attributes in the prompt of each.
func (f *bestFlags) scenarios(s streams, given func(string) bool) ([]ci.Item, func(i int) uint64, error) {
	switch {
	case f.config != "":
		return f.follow(s, given)
	case f.path == "":
		return f.items(), func(i int) uint64 { return uint64(i) }, nil
	}
	items, report, err := ci.Read(f.path)
	if err != nil {
		return nil, nil, err
	}
	fmt.Fprintln(s.err, report)
	if f.split != "all" {
		train, validation, test := ci.Split(len(items), f.validation, f.test, f.splitSeed)
		items = data.Pick(items, map[string][]int{"train": train, "validation": validation, "test": test}[f.split])
	}
	if len(items) == 0 {
		return nil, nil, fmt.Errorf("%s: the %s split has no items (--validation-fraction %v and --test-fraction %v of %d): want other fractions, or --split all",
			f.path, f.split, f.validation, f.test, report.Kept)
	}
	return items, trainingOrder(f.splitSeed), nil
}

// makeBest samples, scores, keeps, and says what came of it.
func makeBest(ctx context.Context, s streams, f bestFlags, given func(string) bool) error {
	items, order, err := f.scenarios(s, given)
	if err != nil {
		return err
	}
	way := f.way()
	if f.prefill {
		way.Prefill = ci.ThinkPrefill
	}
	r := &rejection{flags: f}
	cases := eval.Cases(items, f.prompt, order, way)
	if r.cases, r.samples, err = s.answer(ctx, f.samplingFlags, cases, f.seed, f.maxPrompt, f.rule); err != nil {
		return err
	}
	demos := r.filter()
	if len(demos) == 0 {
		return fmt.Errorf("no answer has a reward of %v or more: the best of %d has %.2f, the mean is %.2f; lower --min-reward, or sample more answers or at another temperature",
			f.minReward, len(r.samples), r.best, r.sum/float64(len(r.samples)))
	}
	if err := data.WriteDemonstrations(f.out, demos); err != nil {
		return err
	}
	fmt.Fprintf(s.out, "%s: %d demonstrations\n%d of %d answers have a reward of %v or more (mean reward %.3f), to %d of %d scenarios\n",
		f.out, len(demos), r.good, len(r.samples), f.minReward, r.sum/float64(len(r.samples)), r.met, len(r.cases))
	return nil
}

// newBar watches scenarios being answered.
func (s streams) newBar(total int) *run.Progress {
	return run.NewProgress(run.ProgressOptions{Out: s.err, Terminal: s.terminal, Unit: "scenario", Total: total})
}
