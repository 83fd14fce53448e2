package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/recipe/synth"
	"github.com/posttrain/posttrain/run"
)

func newSynth(s streams) *cobra.Command {
	c := configured[synth.Options]{spec: synth.Spec, flags: synthesisFlags}
	c.run = func(_ context.Context, o synth.Options, _ run.Reporter) (string, error) {
		return fmt.Sprintf("%s: %d demonstrations\n", o.Out, o.N), synth.Run(o)
	}
	return c.command(s, &cobra.Command{
		Use:   "synth",
		Short: "Write demonstrations of synthetic contextual-integrity scenarios",
		Long: "Write demonstrations (columns prompt and completion) of synthetic contextual-integrity scenarios:\n" +
			"who writes to whom for which task, and which pieces of information fit it. With flaws the writer\n" +
			"errs at the given rates.",
		Example: "  posttrain data synth --n 8000 --seed 1 --leak 0.1 --omit 0.1 --out demos.jsonl",
	})
}

var synthesisFlags = []config.Flag{
	{Name: "n", Key: "n", Help: "number of scenarios (default 4000)"},
	{Name: "seed", Key: "seed",
		Help: "seed of the scenarios, of the order of their information and of the flaws (default 1)"},
	{Name: "held-out", Key: "held_out", Help: "make scenarios whose names and values training scenarios never have"},
	{Name: "out", Key: "out", Help: "file to write: .jsonl, .json or .parquet, each also with .gz"},
	{Name: "leak", Key: "leak", Help: "probability that the writer takes a restricted attribute for a fitting one"},
	{Name: "omit", Key: "omit", Help: "probability that the writer takes a required attribute for an unfitting one"},
	{Name: "garble", Key: "garble", Help: "probability that the writer breaks the format"},
	{Name: "leak-habit", Key: "leak_habit",
		Help: "share of the norms about restricted attributes that the writer always gets wrong"},
	{Name: "omit-habit", Key: "omit_habit",
		Help: "share of the norms about required attributes that the writer always gets wrong"},
}
