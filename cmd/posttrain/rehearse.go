package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/recipe/preference"
	"github.com/posttrain/posttrain/recipe/rehearse"
)

func newRehearse(s streams) *cobra.Command {
	f := &configFlags{command: preference.Command, known: mappoFlags, kind: preference.Spec.TypeOf}
	f.quickStart, _ = preference.Spec.QuickStart(nil)
	cmd := &cobra.Command{
		Use:   "rehearse",
		Short: "Find faults of tokenizer, chat template and data before a long run",
		Long: "Examine the tokens of a run's rows, then have a tiny model with the same vocabulary learn eight of\n" +
			"them by heart. It is saved, loaded and served, and must give each answer back word by word and stop.\n" +
			"The model's weights need not be there. The config says which command it is for; without --config it\n" +
			"is that of mappo, whose chosen answers are rehearsed. The exit code is 1 where a fault was found.",
		Example: "  posttrain rehearse\n" +
			"  posttrain rehearse --config configs/sft.yaml --model DIR --data chats.jsonl",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			sets, err := f.overrides(cmd)
			if err != nil {
				return err
			}
			in := config.Input{Path: f.config, Overrides: sets, Flags: f.known}
			result, err := rehearseRun(cmd.Context(), in, f, run.NewReporter(s.err, s.terminal, f.quiet))
			if err != nil {
				return err
			}
			fmt.Fprint(s.out, result)
			if len(result.Findings) > 0 {
				return fmt.Errorf("the rehearsal found %s, listed above", recipe.Count(len(result.Findings), "fault"))
			}
			return nil
		},
	}
	f.registerConfig(cmd)
	f.registerQuiet(cmd)
	f.fetcher.register(cmd)
	return cmd
}

// rehearseRun rehearses a run of whichever command the config is for.
func rehearseRun(ctx context.Context, in config.Input, f *configFlags, r run.Reporter) (*rehearse.Result, error) {
	o, err := optionsOf[recipe.Rehearser](in, "cannot be rehearsed", rehearsed)
	if err != nil {
		return nil, err
	}
	if err := f.fetcher.pinShapes(ctx, o, r); err != nil {
		return nil, err
	}
	p, err := o.Rehearsal()
	if err != nil {
		return nil, err
	}
	return rehearse.Run(ctx, p, r)
}

// rehearsed are the commands whose options are a [recipe.Rehearser].
var rehearsed = []string{"mappo", "sft"}
