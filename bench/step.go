package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
)

// goals are targets for the step's time as a part of PyTorch's, by preset.
var goals = map[string]float64{"5.4M": 0.6, "56M": 0.5}

// stepOptions are the options of the comparison with PyTorch.
type stepOptions struct {
	rounds
	form
	shape
	python  string
	presets []string
	word    string
	fused   bool
	both    bool
}

func newStep() *cobra.Command {
	o := stepOptions{shape: shape{4, 128, 64}}
	forward := false
	cmd := newCommand("step", "The DPO step against plain PyTorch in eager float32",
		"  go run ./bench step --python venv/bin/python\n  go run ./bench step --preset 5.4M --forward --rounds 15",
		func(out io.Writer) error {
			o.word = map[bool]string{false: "step", true: "forward"}[forward]
			return forEach(o.presets, func(preset string) error { return o.run(preset, out) })
		})
	flags := cmd.Flags()
	o.rounds.register(flags)
	flags.StringVar(&o.python, "python", "python3", "interpreter with PyTorch (scripts/oracle/requirements.txt)")
	flags.StringVar(&o.form.backend, "backend", "auto", "posttrain's engine")
	flags.StringSliceVar(&o.presets, "preset", []string{"5.4M", "56M"}, "models")
	o.shape.register(flags)
	flags.BoolVar(&o.fused, "fused", false, "PyTorch's fused AdamW instead of its default")
	flags.BoolVar(&o.both, "shared", false, "a third side: posttrain with shared prompts")
	flags.BoolVar(&forward, "forward", false, "measure log-probs without gradients instead of the step")
	return cmd
}

// run compares one preset: PyTorch makes the world, posttrain loads it.
func (o *stepOptions) run(preset string, out io.Writer) error {
	world, err := os.MkdirTemp("", "bench-")
	launches := func(world string) []launch { return o.launches(preset, world) }
	return play(world, err, launches, func(sides []*side) error {
		all, err := o.alternate(sides, o.word)
		if err != nil {
			return err
		}
		report(out, fmt.Sprintf("%s, %s, %s", o.word, preset, o.shape), all)
		if most, ok := goals[preset]; ok && o.word == "step" {
			goal(out, "posttrain / PyTorch", all[1], all[0], most)
		}
		return nil
	})
}

// launches are PyTorch, which makes the world, and one or two forms of posttrain.
func (o *stepOptions) launches(preset, world string) []launch {
	args := append([]string{"bench/peer_torch.py", "--preset", preset, "--write", world}, flagArgs(o.shape.register)...)
	if o.fused {
		args = append(args, "--fused")
	}
	shared := o.form
	shared.share = true
	all := []launch{{"plain step", o.python, args}, way{"posttrain", &o.form}.on(world)}
	if o.both {
		all = append(all, way{"posttrain, shared prompts", &shared}.on(world))
	}
	return all
}
