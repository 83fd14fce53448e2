package main

import (
	"cmp"

	"github.com/spf13/pflag"
)

// drawOptions are the options of a comparison on prompts.
type drawOptions struct {
	rounds
	backend, preset string
	prompts         []int // tokens of a prompt
	groups, samples int
	fresh           int
}

func (o *drawOptions) register(flags *pflag.FlagSet) {
	o.few(7)
	o.rounds.register(flags)
	flags.StringVar(&o.backend, "backend", cmp.Or(o.backend, "auto"), "posttrain's engine")
	flags.StringVar(&o.preset, "preset", cmp.Or(o.preset, "5.4M"), "model, with random weights")
	flags.IntSliceVar(&o.prompts, "prompt", o.prompts, "tokens of a prompt")
}

// registerGroups is register for a comparison that samples every prompt several times.
func (o *drawOptions) registerGroups(flags *pflag.FlagSet) {
	o.register(flags)
	flags.IntVar(&o.groups, "groups", 8, "prompts")
	flags.IntVar(&o.samples, "samples", 16, "samples of each")
	flags.IntVar(&o.fresh, "new", 64, "tokens of a sample")
}

// world makes the world of a length of prompts, each of them repeated.
func (o *drawOptions) world(length, repeated int) (string, error) {
	return promptWorld(o.preset, o.groups, repeated, length, o.fresh, nil)
}
