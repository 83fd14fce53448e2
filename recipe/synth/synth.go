// Package synth is the recipe of posttrain data synth: it writes demonstrations of synthetic contextual-integrity
// scenarios.
package synth

import (
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/recipe"
)

// Command is the command that runs this recipe.
const Command = "data synth"

// Options say which scenarios there are, how the writer errs, and where the demonstrations go.
type Options struct {
	N        int    `yaml:"n" want:">=1"`
	Seed     uint64 `yaml:"seed"`
	HeldOut  bool   `yaml:"held_out"` // scenarios whose names and values training scenarios never have
	ci.Flaws `yaml:",inline"`
	Out      string `yaml:"out" want:"given" words:"a .jsonl, .json or .parquet file (also .gz)"`
}

// Spec says how a configuration becomes Options.
var Spec = config.Register(&config.Spec[Options]{
	Command:  Command,
	Defaults: func(*config.Given) Options { return Options{N: 4000, Seed: 1} },
})

// Check names the options that are out of range, and a file that cannot be written.
func (o Options) Check() []fault.Fault {
	return append(fault.Check(o), recipe.CheckOut(o.Out)...)
}

// Run writes the demonstrations.
func Run(o Options) error {
	if err := Spec.Verify(&o); err != nil {
		return err
	}
	items := ci.Synthesize(o.N, o.Seed)
	if o.HeldOut {
		items = ci.SynthesizeHeldOut(o.N, o.Seed)
	}
	return data.WriteDemonstrations(o.Out, ci.Demonstrations(items, o.Flaws, o.Seed))
}
