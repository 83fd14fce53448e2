package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/hub"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/recipe/plan"
	"github.com/posttrain/posttrain/recipe/preference"
)

// planFlags are the flags of posttrain plan.
type planFlags struct {
	configFlags
	asJSON, rehearse bool
	device, into     string
}

func newPlan(s streams) *cobra.Command {
	f := &planFlags{configFlags: configFlags{command: preference.Command, known: mappoFlags,
		kind: preference.Spec.TypeOf}}
	f.quickStart, _ = preference.Spec.QuickStart(nil)
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Say what a run takes before it starts, and rehearse it: memory, steps, hours, faults of its data",
		Long: "Print what a training run takes before it starts: bytes in memory, the shapes of batches that are\n" +
			"compiled, steps, tokens and hours. It reads the model's config.json, its tokenizer\n" +
			"and the data; the weights need not be there. A run that does not fit ends with exit code 1. The\n" +
			"config says which command it is for; without --config it is that of mappo.\n\n" +
			"With --rehearse it also looks for faults of tokenizer, chat template and data in the tokens of the\n" +
			"run's rows, such as answers without an end. The exit code is 1 where a fault was found.",
		Example: "  posttrain plan --config mappo.yaml\n" +
			"  posttrain plan --config sft.yaml --json\n" +
			"  posttrain plan --model DIR --data pairs.jsonl --lora-rank 16\n" +
			"  posttrain plan --config sft.yaml --rehearse",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := f.plan(cmd, run.NewReporter(s.err, s.terminal, f.quiet))
			if err != nil {
				return err
			}
			return cmp.Or(s.print(f.asJSON, p, p.String()), p.Err())
		},
	}
	f.registerConfig(cmd)
	f.registerQuiet(cmd)
	f.fetcher.register(cmd)
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print JSON, sizes in bytes, times in seconds")
	cmd.Flags().StringVar(&f.device, "device", "", "compile the run's programs for a GPU that is not there: CHIP, CHIP:N for N of\n"+
		"them, CHIP:HxN for H hosts with N each; chips: "+strings.Join(backend.Chips(), ", ")+",\nor a .json file of their facts")
	cmd.Flags().StringVar(&f.into, "compile-into", "", "a folder for what --device compiled, which runs on such a device then need not compile:\n"+
		"POSTTRAIN_XLA_CACHE names it there")
	cmd.Flags().BoolVar(&f.rehearse, "rehearse", false, "examine the tokens of the run's rows (mappo, sft)")
	return cmd
}

// plan plans a run of whichever command the config is for, and rehearses it where that is asked for.
func (f *planFlags) plan(cmd *cobra.Command, r run.Reporter) (*plan.Plan, error) {
	sets, err := f.overrides(cmd)
	if err != nil {
		return nil, err
	}
	in, err := f.input(f.config, sets)
	if err != nil {
		return nil, err
	}
	in.Allow = append(in.Allow, config.Unsent...)
	if f.into != "" && f.device == "" {
		return nil, errors.New("--compile-into: want --device CHIP, too")
	}
	if cmd.Flags().Changed("device") {
		d, err := backend.ReadDevice(f.device)
		if err != nil {
			return nil, err
		}
		in.Overrides = append(in.Overrides, config.Override{Flag: "--device", Key: "backend", Value: "device:" + f.device})
		if d.Devices() > 1 {
			in.Overrides = append(in.Overrides, config.Override{Flag: "--device", Key: "engine.devices", Value: fmt.Sprint(d.Devices())})
		}
	}
	o, err := optionsOf[recipe.Planned](in, "cannot be planned", planned)
	if err != nil {
		return nil, err
	}
	again, rehearses := o.(recipe.Rehearser)
	if f.rehearse && !rehearses {
		_, err := optionsOf[recipe.Rehearser](in, "cannot be rehearsed", rehearsed)
		return nil, err
	}
	if err := f.fetcher.pinBy(cmd.Context(), hub.Shapes, o, r); err != nil { // it downloads no weights
		return nil, err
	}
	p, err := plan.Make(cmd.Context(), o, r, f.into)
	if err != nil || !f.rehearse {
		return p, err
	}
	rehearsal, err := again.Rehearsal()
	if err == nil {
		p.Rehearsal, err = plan.Rehearse(cmd.Context(), rehearsal)
	}
	return p, err
}

// planned are the commands with a [recipe.Planned], rehearsed those with a [recipe.Rehearser].
var planned, rehearsed = []string{"mappo", "sft", "reward-model", "ci-rl", "grpo"}, []string{"mappo", "sft"}
