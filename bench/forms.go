package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
)

// formsOptions are those of a comparison between posttrain's own forms, which needs no Python.
type formsOptions struct {
	rounds
	shape
	backend string
	presets []string
	rate    float64
}

func (o *formsOptions) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	o.rounds.register(flags)
	flags.StringVar(&o.backend, "backend", "auto", "engine")
	flags.StringSliceVar(&o.presets, "preset", []string{"5.4M", "56M"}, "models")
	flags.IntVar(&o.pairs, "pairs", o.pairs, "pairs a step")
	flags.IntVar(&o.length, "length", o.length, "tokens a row")
	flags.IntVar(&o.prompt, "prompt", o.prompt, "of these, tokens of the prompt")
	flags.Float64Var(&o.rate, "rate", 1e-6, "learning rate")
}

// named is a form with a name for the table.
type named struct {
	name string
	form
}

// newPrefix measures what sharing a pair's prompt saves.
func newPrefix() *cobra.Command {
	o := &formsOptions{shape: shape{4, 256, 192}}
	cmd := &cobra.Command{
		Use:     "prefix",
		Short:   "Prompts shared in one row against two rows a pair",
		Example: "  go run ./bench prefix\n  go run ./bench prefix --length 128 --prompt 64",
		Args:    cobra.NoArgs,
	}
	o.register(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return o.compare(cmd.OutOrStdout(), []named{{"two rows", form{}}, {"shared prompt", form{share: true}}}, 0.72)
	}
	return cmd
}

// newAccumulate measures what accumulating gradients costs in time and saves in memory.
func newAccumulate() *cobra.Command {
	o := &formsOptions{shape: shape{8, 128, 64}}
	cmd := &cobra.Command{
		Use:     "accumulate",
		Short:   "A step in one piece against accumulated microbatches and gradient checkpointing",
		Example: "  go run ./bench accumulate --preset 5.4M --pairs 16",
		Args:    cobra.NoArgs,
	}
	o.register(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		forms := []named{{"one piece", form{}}}
		for micro := o.pairs / 2; micro > 0; micro /= 4 {
			forms = append(forms, named{fmt.Sprintf("%d pairs at once", micro), form{micro: micro}})
		}
		return o.compare(cmd.OutOrStdout(), append(forms, named{"checkpointed", form{checkpoint: true}}), 0)
	}
	return cmd
}

// compare measures the step in several forms; the last's ratio to the first is held against most (0: nothing asked).
func (o *formsOptions) compare(out io.Writer, forms []named, most float64) error {
	for _, preset := range o.presets {
		all, err := o.measure(preset, forms)
		if err != nil {
			return err
		}
		report(out, fmt.Sprintf("step, %s, %s", preset, o.shape), all)
		if most > 0 {
			goal(out, all[len(all)-1].side.name+" / "+all[0].side.name, all[len(all)-1], all[0], most)
		}
	}
	return nil
}

func (o *formsOptions) measure(preset string, forms []named) ([]*series, error) {
	world, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(world)
	if err := writeWorld(world, preset, o.shape, o.rate); err != nil {
		return nil, err
	}
	var sides []*side
	defer func() { stopAll(sides) }()
	for _, f := range forms {
		f.backend = o.backend
		s, err := startOurs(f.name, world, f.form)
		if err != nil {
			return nil, err
		}
		sides = append(sides, s)
	}
	return o.alternate(sides, "step")
}
