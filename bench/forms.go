package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
)

// formsOptions are the options of a comparison between forms of posttrain's own step, which needs no Python.
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
	o.shape.register(flags)
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
	cmd := newCommand("prefix", "Prompts shared in one row against two rows a pair",
		"  go run ./bench prefix\n  go run ./bench prefix --length 128 --prompt 64",
		func(out io.Writer) error {
			return o.compare(out, []named{{"two rows", form{}}, {"shared prompt", form{share: true}}}, 0.72)
		})
	o.register(cmd)
	return cmd
}

// newAccumulate measures what accumulating gradients costs in time and saves in memory.
func newAccumulate() *cobra.Command {
	o := &formsOptions{shape: shape{8, 128, 64}}
	cmd := newCommand("accumulate", "A step in one piece against accumulated microbatches and gradient checkpointing",
		"  go run ./bench accumulate --preset 5.4M --pairs 16",
		func(out io.Writer) error {
			forms := []named{{"one piece", form{}}}
			for micro := o.pairs / 2; micro > 0; micro /= 4 {
				forms = append(forms, named{fmt.Sprintf("%d pairs at once", micro), form{micro: micro}})
			}
			return o.compare(out, append(forms, named{"checkpointed", form{checkpoint: true}}), 0)
		})
	o.register(cmd)
	return cmd
}

// compare measures the step in several forms. The ratio of the last to the first should be at most most (0: no target).
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
	world, err := pairWorld(preset, o.shape, o.rate)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(world)
	var all []launch
	for _, f := range forms {
		f.backend = o.backend
		all = append(all, launchOurs(f.name, "serve", world, f.register))
	}
	sides, err := startAll(all...)
	if err != nil {
		return nil, err
	}
	defer stopAll(sides)
	return o.alternate(sides, "step")
}
