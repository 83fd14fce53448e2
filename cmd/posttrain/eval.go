package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/reward"
	"github.com/posttrain/posttrain/run"
)

func newEval(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use: "eval", Short: "Measure a model",
		Example: "  posttrain eval ci --model DIR", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newEvalCI(s))
	return cmd
}

func newEvalCI(s streams) *cobra.Command {
	var m samplingFlags
	var n, show int
	var seed uint64
	cmd := &cobra.Command{
		Use: "ci", Short: "Measure contextual integrity on held-out synthetic scenarios",
		Long: "Let a model answer held-out synthetic scenarios and count what it shares: format, integrity (nothing restricted), utility\n" +
			"(everything required), complete (both).",
		Example: "  posttrain eval ci\n  posttrain eval ci --model runs/mappo-20260102-150405/model --n 500", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if n < 1 {
				return usageError{fmt.Errorf("--n %d: want 1 or more", n)}
			}
			if err := m.check(); err != nil {
				return err
			}
			return evalCI(cmd.Context(), s, m, n, show, seed)
		},
	}
	m.register(cmd, 0)
	cmd.Flags().IntVar(&n, "n", 200, "scenarios")
	cmd.Flags().IntVar(&show, "show", 0, "scenarios to print with their answers")
	cmd.Flags().Uint64Var(&seed, "seed", 1000, "seed of scenarios and draws")
	return cmd
}

func evalCI(ctx context.Context, s streams, m samplingFlags, n, show int, seed uint64) error {
	bar := run.NewProgress(run.ProgressOptions{Out: s.err, Terminal: s.terminal, Unit: "scenario", Total: n})
	answers, err := answerScenarios(ctx, data.SynthesizeHeldOut(n, seed), m, seed, func(done int) { bar.Step(done, nil) })
	bar.Close()
	if err != nil {
		return err
	}
	var tally eval.CI
	for i, a := range answers {
		k := reward.Of(&a.item)
		score := reward.Evaluate(k, a.texts[0], false, reward.DefaultOptions())
		tally.Add(score, len(k.Required))
		if i < show {
			fmt.Fprintf(s.out, "%s\n%s\nreward %.2f\n\n", a.prompt[0].Content, a.texts[0], score.Reward)
		}
	}
	fmt.Fprint(s.out, &tally)
	return nil
}
