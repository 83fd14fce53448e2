package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/reward"
	"github.com/posttrain/posttrain/run"
)

// bestFlags choose scenarios and which of the answers to them are worth imitating.
type bestFlags struct {
	synthFlags
	samplingFlags
	path             string  // items of a file; "" makes scenarios
	part             string  // of the file
	validation, test float64 // fractions of the file's split
	minReward        float64
	keep             int // answers of a scenario; 0: all
}

func newBest(s streams) *cobra.Command {
	var f bestFlags
	cmd := &cobra.Command{
		Use: "best", Short: "Sample n answers to each scenario and keep the good ones as demonstrations",
		Long: "Sample answers to contextual-integrity scenarios and write those with a reward of at least --min-reward as demonstrations, which\n" +
			"posttrain sft takes: rejection sampling, also known as reward-filtered fine-tuning. With --n and --seed of a ci-rl run on embedded\n" +
			"scenarios, or with --data and --part train, it sees the scenarios that the run trains on. Equal answers to a scenario count once.",
		Example: "  posttrain data best --n 1000 --answers 8 --out good.jsonl\n" +
			"  posttrain data best --model DIR --data dataset.json --part train --min-reward 0.8 --out good.jsonl",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(cmd); err != nil {
				return err
			}
			return makeBest(cmd.Context(), s, f)
		},
	}
	f.synthFlags.register(cmd, 300)
	f.samplingFlags.register(cmd, 1)
	flags := cmd.Flags()
	flags.IntVar(&f.answers, "answers", 8, "answers sampled for each scenario")
	flags.Float64Var(&f.minReward, "min-reward", 1, "least reward of an answer that is kept, from -1 (everything) to 1 (all that is required, nothing that is restricted)")
	flags.IntVar(&f.keep, "keep", 0, "most answers kept of a scenario, the best first; 0 keeps all")
	flags.StringVar(&f.path, "data", "", "contextual-integrity items to answer, .json, .jsonl or .parquet (default: synthetic scenarios)")
	flags.StringVar(&f.part, "part", "all", "part of --data: all, train, validation or test, as ci-rl splits it with the same --seed")
	flags.Float64Var(&f.validation, "validation-fraction", 0.09, "share of --data that the split gives to validation")
	flags.Float64Var(&f.test, "test-fraction", 0.10, "share of --data that the split gives to test")
	return cmd
}

// parts are what --part takes.
var parts = []string{"all", "train", "validation", "test"}

func (f *bestFlags) check(cmd *cobra.Command) error {
	if err := f.synthFlags.check(cmd.CommandPath()); err != nil {
		return err
	}
	if err := f.samplingFlags.check(); err != nil {
		return err
	}
	if err := f.applies(cmd); err != nil {
		return usageError{err}
	}
	sum := f.validation + f.test
	switch {
	case !(f.minReward >= -1 && f.minReward <= 1):
		return usageError{fmt.Errorf("--min-reward %v: want a number from -1 to 1", f.minReward)}
	case f.keep < 0:
		return usageError{fmt.Errorf("--keep %d: want 1 or more, or 0 for all", f.keep)}
	case !slices.Contains(parts, f.part):
		return usageError{fmt.Errorf("--part %q: want all, train, validation or test", f.part)}
	case !(f.validation >= 0 && f.test >= 0 && sum < 1):
		return usageError{fmt.Errorf("--validation-fraction %v and --test-fraction %v: want numbers of 0 or more with a sum below 1", f.validation, f.test)}
	}
	return nil
}

// applies refuses flags without effect.
func (f *bestFlags) applies(cmd *cobra.Command) error {
	given := cmd.Flags().Changed
	for _, name := range []string{"n", "held-out"} {
		if f.path != "" && given(name) {
			return fmt.Errorf("--%s: it is about synthetic scenarios, and --data %s has its own; remove one of the two flags", name, f.path)
		}
	}
	for _, name := range []string{"part", "validation-fraction", "test-fraction"} {
		if f.path == "" && given(name) {
			return fmt.Errorf("--%s: only --data FILE is split; for the training scenarios of ci-rl give their number as --n", name)
		}
	}
	for _, name := range []string{"validation-fraction", "test-fraction"} {
		if f.part == "all" && given(name) {
			return fmt.Errorf("--%s: all of the file is taken; add --part train, validation or test", name)
		}
	}
	return nil
}

// scenarios are the items to answer.
func (f *bestFlags) scenarios(s streams) ([]data.CIItem, error) {
	if f.path == "" {
		return f.items(), nil
	}
	items, report, err := data.ReadCI(f.path)
	if err != nil {
		return nil, err
	}
	fmt.Fprintln(s.err, report)
	if f.part == "all" {
		return items, nil
	}
	train, validation, test := data.SplitCI(len(items), f.validation, f.test, f.seed)
	items = pick(items, map[string][]int{"train": train, "validation": validation, "test": test}[f.part])
	if len(items) == 0 {
		return nil, fmt.Errorf("%s: the %s part has no items (--validation-fraction %v, --test-fraction %v of %d)", f.path, f.part, f.validation, f.test, report.Kept)
	}
	return items, nil
}

// makeBest samples, scores, keeps, and says what came of it.
func makeBest(ctx context.Context, s streams, f bestFlags) error {
	items, err := f.scenarios(s)
	if err != nil {
		return err
	}
	bar := run.NewProgress(run.ProgressOptions{Out: s.err, Terminal: s.terminal, Unit: "scenario", Total: len(items)})
	answers, err := answerScenarios(ctx, items, f.samplingFlags, f.seed, func(done int) { bar.Step(done, nil) })
	bar.Close()
	if err != nil {
		return err
	}
	demos, tally := filterAnswers(answers, f.minReward, f.keep)
	if len(demos) == 0 {
		return fmt.Errorf("no answer has a reward of %v or more: the best of %d has %.2f, the mean is %.2f; lower --min-reward, or sample more answers or at another temperature",
			f.minReward, tally.answers, tally.best, tally.sum/float64(tally.answers))
	}
	if err := data.WriteDemonstrations(f.out, demos); err != nil {
		return err
	}
	fmt.Fprintf(s.out, "%s: %d demonstrations\n%d of %d answers have a reward of %v or more (mean reward %.3f), to %d of %d scenarios\n",
		f.out, len(demos), tally.good, tally.answers, f.minReward, tally.sum/float64(tally.answers), tally.scenarios, len(items))
	return nil
}

// filterTally counts what rejection sampling met.
type filterTally struct {
	answers, good int // sampled, of them good enough
	scenarios     int // with an answer good enough
	sum, best     float64
}

// filterAnswers makes demonstrations of the answers that are good enough: of a scenario at most keep (0: all), the best
// first, equal ones once.
func filterAnswers(answers []answered, least float64, keep int) (demos []data.Demonstration, t filterTally) {
	t.best = math.Inf(-1)
	for i, a := range answers {
		good := t.score(a, least)
		if len(good) > 0 {
			t.scenarios++
		}
		if keep > 0 && len(good) > keep {
			good = good[:keep]
		}
		for _, g := range good {
			demos = append(demos, data.Demonstration{
				Prompt:     data.Text{Messages: a.prompt},
				Completion: data.Text{Messages: []data.Message{{Role: "assistant", Content: g.text}}},
				Source:     fmt.Sprintf("scenario %d", i+1),
			})
		}
	}
	return demos, t
}

// scored is an answer with its reward.
type scored struct {
	text   string
	reward float64
}

// score gives the distinct answers to a scenario that are good enough, the best first.
func (t *filterTally) score(a answered, least float64) (good []scored) {
	for _, text := range a.texts {
		r := reward.Evaluate(reward.Of(&a.item), text, false, reward.DefaultOptions()).Reward
		t.answers++
		t.sum += r
		t.best = max(t.best, r)
		if r < least {
			continue
		}
		t.good++
		if !slices.ContainsFunc(good, func(s scored) bool { return s.text == text }) {
			good = append(good, scored{text, r})
		}
	}
	slices.SortStableFunc(good, func(x, y scored) int { return cmp.Compare(y.reward, x.reward) })
	return good
}
