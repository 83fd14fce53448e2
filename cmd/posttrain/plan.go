package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/recipe/plan"
	"github.com/posttrain/posttrain/recipe/preference"
	"github.com/posttrain/posttrain/run"
)

func newPlan(s streams) *cobra.Command {
	f := &configFlags{command: preference.Command, known: mappoFlags, kind: preference.Spec.TypeOf}
	f.quickStart, _ = preference.Spec.QuickStart(nil)
	asJSON := false
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Say what a run takes before it starts: memory, disk, batch shapes, steps, hours",
		Long: "Print what a training run takes before it starts: bytes in memory and on the disk, the shapes of\n" +
			"batches that are compiled, steps, tokens and hours. It reads the model's config.json, its tokenizer\n" +
			"and the data; the weights need not be there. A run that does not fit ends with exit code 1. The\n" +
			"config says which command it is for; without --config it is that of mappo.",
		Example: "  posttrain plan --config configs/mappo.yaml\n" +
			"  posttrain plan --config configs/sft.yaml --json\n" +
			"  posttrain plan --model DIR --data pairs.jsonl --lora-rank 16",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			sets, err := f.overrides(cmd)
			if err != nil {
				return err
			}
			in := config.Input{Path: f.config, Overrides: sets, Flags: f.known}
			p, err := planRun(cmd.Context(), in, f, run.NewReporter(s.err, s.terminal, f.quiet))
			if err != nil {
				return err
			}
			if err := printPlan(s.out, p, asJSON); err != nil {
				return err
			}
			return p.Refusal()
		},
	}
	f.registerConfig(cmd)
	f.fetcher.register(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, sizes in bytes, times in seconds")
	return cmd
}

func printPlan(out io.Writer, p *plan.Plan, asJSON bool) error {
	if !asJSON {
		_, err := fmt.Fprint(out, p)
		return err
	}
	text, err := json.MarshalIndent(p, "", "  ")
	if err == nil {
		_, err = fmt.Fprintf(out, "%s\n", text)
	}
	return err
}

// planRun plans a run of whichever command the config is for.
func planRun(ctx context.Context, in config.Input, f *configFlags, r run.Reporter) (*plan.Plan, error) {
	o, err := optionsOf[recipe.Drafter](in, "cannot be planned", planned)
	if err != nil {
		return nil, err
	}
	if err := f.fetcher.pin(ctx, o, r); err != nil {
		return nil, err
	}
	return plan.Make(ctx, o, r)
}

// planned are the commands whose options are a [recipe.Drafter].
var planned = []string{"mappo", "sft", "ci-rl"}
