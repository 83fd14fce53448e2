package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/reward"
)

func newData(s streams) *cobra.Command {
	return parent(&cobra.Command{
		Use: "data", Short: "Make training data (synthetic scenarios, best-of-n pairs, good answers), check it, convert it",
		Example: "  posttrain data synth --n 1000 --out demos.jsonl\n  posttrain data pairs --model DIR --n 200 --out pairs.jsonl\n" +
			"  posttrain data best --model DIR --n 200 --out good.jsonl\n  posttrain data check dataset.json\n  posttrain data convert dataset.json items.parquet",
	}, newSynth(s), newPairs(s), newBest(s), newCheck(s), newConvert(s))
}

// synthFlags choose scenarios.
type synthFlags struct {
	n       int
	seed    uint64
	heldOut bool
	out     string
}

func (f *synthFlags) register(cmd *cobra.Command, n int) {
	cmd.Flags().IntVar(&f.n, "n", n, "scenarios")
	cmd.Flags().Uint64Var(&f.seed, "seed", 1, "seed of scenarios, orders and draws")
	cmd.Flags().BoolVar(&f.heldOut, "held-out", false, "scenarios whose names and values training scenarios never have")
	cmd.Flags().StringVar(&f.out, "out", "", "file to write: .jsonl, .json or .parquet, each also with .gz")
}

func (f *synthFlags) check(path string) error {
	if f.n < 1 {
		return usageError{fmt.Errorf("--n %d: want 1 or more", f.n)}
	}
	if f.out == "" {
		return usageError{fmt.Errorf("%s wants --out FILE, such as --out pairs.jsonl", path)}
	}
	if err := data.CheckWritable(f.out); err != nil {
		return usageError{fmt.Errorf("--out %w", err)}
	}
	if info, err := os.Stat(filepath.Dir(f.out)); err != nil || !info.IsDir() {
		return fmt.Errorf("--out %s: there is no folder %s to write it in", f.out, filepath.Dir(f.out))
	}
	return nil
}

func (f *synthFlags) items() []ci.Item {
	if f.heldOut {
		return ci.SynthesizeHeldOut(f.n, f.seed)
	}
	return ci.Synthesize(f.n, f.seed)
}

func newPairs(s streams) *cobra.Command {
	var f synthFlags
	var m samplingFlags
	cmd := &cobra.Command{
		Use: "pairs", Short: "Sample n answers to each scenario and pair the best with the worst, with their rewards",
		Long: "Sample answers to synthetic scenarios and write pairs as the MaPPO paper makes them: the best and the worst of n answers by the\n" +
			"contextual-integrity reward, mapped to [0,1] by (R+1)/2. A scenario whose answers all score the same gives no pair.",
		Example: "  posttrain data pairs --model embedded --n 300 --held-out --out pairs.jsonl", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(cmd.CommandPath()); err != nil {
				return err
			}
			if err := m.check(); err != nil {
				return err
			}
			return makePairs(cmd.Context(), s, f, m)
		},
	}
	f.register(cmd, 300)
	m.register(cmd, 1)
	cmd.Flags().IntVar(&m.answers, "answers", 8, "answers sampled for each scenario")
	return cmd
}

// makePairs samples, scores, pairs, and says what came of it.
func makePairs(ctx context.Context, s streams, f synthFlags, m samplingFlags) error {
	items := f.items()
	cases := eval.Cases(items, ci.PromptCompact, func(i int) uint64 { return uint64(i) }, m.way())
	cases, samples, err := s.answer(ctx, m, cases, f.seed, 0, reward.DefaultOptions())
	if err != nil {
		return err
	}
	var pairs []data.Preference
	for i, c := range cases {
		var texts []string
		var scores []float64
		for _, a := range samples[i*m.answers : (i+1)*m.answers] {
			texts, scores = append(texts, a.Answer.Text), append(scores, reward.Unit(a.Score.Reward))
		}
		if p, ok := data.BestWorst(data.Text{Messages: c.Messages}, texts, scores, fmt.Sprintf("scenario %d", i+1)); ok {
			pairs = append(pairs, p)
		}
	}
	if len(pairs) == 0 {
		return errors.New("no scenario gave a pair: all answers to each of them score the same; sample at a higher temperature or more answers")
	}
	if err := data.WritePreferences(f.out, pairs); err != nil {
		return err
	}
	fmt.Fprintf(s.out, "%s: %d pairs of %d scenarios (the other %d give none: all answers score the same)\n", f.out, len(pairs), len(cases), len(cases)-len(pairs))
	return nil
}
