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

// newPrefix measures what sharing a pair's prompt saves.
func newPrefix() *cobra.Command {
	o := &formsOptions{shape: shape{4, 256, 192}}
	cmd := newCommand("prefix", "Prompts shared in one row against two rows a pair",
		"  go run ./bench prefix\n  go run ./bench prefix --length 128 --prompt 64",
		func(out io.Writer) error {
			return o.compare(out, 0.72, way{"two rows", &form{backend: o.backend}},
				way{"shared prompt", &form{backend: o.backend, share: true}})
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
			forms := []way{{"one piece", &form{backend: o.backend}}}
			for micro := o.pairs / 2; micro > 0; micro /= 4 {
				name := fmt.Sprintf("%d pairs at once", micro)
				forms = append(forms, way{name, &form{backend: o.backend, micro: micro}})
			}
			return o.compare(out, 0, append(forms, way{"checkpointed", &form{backend: o.backend, checkpoint: true}})...)
		})
	o.register(cmd)
	return cmd
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
