package main

import (
	"cmp"
	"fmt"
	"io"

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
	flags.Float64Var(&o.rate, "rate", cmp.Or(o.rate, 1e-6), "learning rate")
}

// compare measures the step in several forms. The ratio of the last to the first should be at most most (0: no target).
func (o *formsOptions) compare(out io.Writer, most float64, forms ...way) error {
	return forEach(o.presets, func(preset string) error {
		world, err := pairWorld(preset, o.shape, o.rate)
		launches := func(world string) []launch { return allOn(world, forms) }
		return play(world, err, launches, func(sides []*side) error {
			all, err := o.alternate(sides, "step")
			if err != nil {
				return err
			}
			report(out, fmt.Sprintf("step, %s, %s", preset, o.shape), all)
			if last := all[len(all)-1]; most > 0 {
				goal(out, last.side.name+" / "+all[0].side.name, last, all[0], most)
			}
			return nil
		})
	})
}
