package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
)

// goals are targets for the step's time as a part of PyTorch's, by type and preset.
var goals = map[string]map[string]float64{
	"float32":  {"5.4M": 0.6, "56M": 0.5},
	"bfloat16": {"56M": 1, "135M": 1},
}

// productGoals are targets for the share of matrix products in the float32 step, by preset.
var productGoals = map[string]float64{"5.4M": 0.8, "56M": 0.9}

// halfGoal is the target for the bfloat16 step as a part of the float32 one.
const halfGoal = 0.55

// stepOptions are the options of the comparison with PyTorch.
type stepOptions struct {
	rounds
	form
	shape
	python  string
	presets []string
	others  []string
	word    string
	dtype   string
	fused   bool
	both    bool
}

func newStep() *cobra.Command {
	o := stepOptions{shape: shape{4, 128, 64}}
	forward := false
	cmd := newCommand("step", "The DPO step against plain PyTorch, beside the time of its matrix products",
		"  go run ./internal/bench step --python venv/bin/python\n  go run ./internal/bench step --preset 5.4M --forward --rounds 15\n"+
			"  go run ./internal/bench step --preset 5.4M,56M,135M --dtype bfloat16 --backend xla:amx",
		func(out io.Writer) error {
			if err := checkDType(o.dtype); err != nil {
				return err
			}
			if o.bfloat16 = o.dtype == "bfloat16"; o.bfloat16 {
				o.loose = 0.02
			}
			o.word = map[bool]string{false: "step", true: "forward"}[forward]
			return forEach(o.presets, func(preset string) error { return o.run(preset, out) })
		})
	cmd.Long = `Float32 is against PyTorch in eager mode; bfloat16 is against its autocast with torch.compile and fused
AdamW, and beside posttrain's own float32. A second table has the step's matrix products alone, as fast as each side's library
computes them, and as fast as any library here does.`
	flags := cmd.Flags()
	o.rounds.register(flags)
	flags.StringVar(&o.python, "python", "python3", "interpreter with PyTorch (scripts/oracle/requirements.txt)")
	flags.StringVar(&o.form.backend, "backend", "auto", "posttrain's engine")
	flags.StringVar(&o.dtype, "dtype", "float32", "type to compute in: float32 or bfloat16; the weights are float32")
	flags.StringSliceVar(&o.presets, "preset", []string{"5.4M", "56M"}, "models")
	flags.StringSliceVar(&o.others, "floors", nil, "engines whose products are measured, too, such as xla:amx=bfloat16")
	o.shape.register(flags)
	flags.BoolVar(&o.fused, "fused", false, "PyTorch's fused AdamW instead of its default")
	flags.BoolVar(&o.both, "shared", false, "one more side: posttrain with shared prompts")
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
		title := fmt.Sprintf("%s, %s, %s, %s", o.word, preset, o.shape, o.dtype)
		report(out, title, all)
		if o.word != "step" {
			return nil
		}
		if most, ok := goals[o.dtype][preset]; ok {
			goal(out, "posttrain / PyTorch", all[1], all[0], most)
		}
		if o.bfloat16 {
			goal(out, "bfloat16 / float32", all[1], all[2], halfGoal)
		}
		return o.floors(out, title, world, preset, all)
	})
}

// floors prints the second table.
func (o *stepOptions) floors(out io.Writer, title, world, preset string, all []*series) error {
	var own []floor
	for _, s := range all {
		f, err := floorOf(s.side)
		if err != nil {
			return err
		}
		own = append(own, f)
	}
	least := productGoals[preset]
	if o.bfloat16 {
		least = 0
	}
	printFloors(out, "matrix products, "+title, all, own, otherFloors(out, world, o.others), least)
	return nil
}

// launches are PyTorch, which makes the world, posttrain, and other forms of it: float32 beside bfloat16, shared
// prompts.
func (o *stepOptions) launches(preset, world string) []launch {
	args := append([]string{"internal/bench/peer_torch.py", "--preset", preset, "--write", world, "--dtype", o.dtype},
		flagArgs(o.shape.register)...)
	if o.fused || o.bfloat16 {
		args = append(args, "--fused")
	}
	name := "plain step"
	if o.bfloat16 {
		args, name = append(args, "--compile"), "autocast and compile"
	}
	all := []launch{{name, o.python, args}, way{"posttrain", &o.form}.on(world)}
	if o.bfloat16 {
		all = append(all, way{"posttrain, float32", &form{backend: "auto"}}.on(world))
	}
	if o.both {
		shared := o.form
		shared.share = true
		all = append(all, way{"posttrain, shared prompts", &shared}.on(world))
	}
	return all
}
