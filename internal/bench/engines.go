package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// newEngines measures what auto chooses between: the training step and sampling, on every engine.
func newEngines() *cobra.Command {
	forms := formsOptions{shape: shape{4, 128, 64}}
	draws := drawOptions{prompts: []int{64}, groups: 16, fresh: 64}
	var engines []string
	cmd := newCommand("engines", "The DPO step and sampling on several engines: what auto's rules rest on",
		"  go run ./internal/bench engines --preset 5.4M --engine onnx,xla:cpu,xla:amx,xla:amx=bfloat16", func(out io.Writer) error {
			steps, samplers, err := engineWays(engines)
			if err != nil {
				return err
			}
			forms.draws = strings.Contains(strings.Join(engines, ","), "bfloat16") // whose losses differ
			if err := forms.compare(out, 0, steps...); err != nil {
				return err
			}
			draws.rounds = forms.rounds
			return forEach(forms.presets, func(preset string) error { return draws.engines(preset, samplers, out) })
		})
	flags := cmd.Flags()
	forms.register(cmd)
	_ = flags.MarkHidden("backend")
	flags.StringSliceVar(&engines, "engine", []string{"go", "onnx", "xla:cpu"}, "engines, each perhaps with =bfloat16")
	flags.IntVar(&draws.groups, "batch", draws.groups, "prompts sampled together")
	flags.IntVar(&draws.fresh, "new", draws.fresh, "tokens of a sample")
	return cmd
}

// engineWays are the sides of a list such as onnx, xla:amx=bfloat16.
func engineWays(engines []string) (steps, samplers []way, err error) {
	for _, name := range engines {
		spec, dtype, has := strings.Cut(name, "=")
		if has && checkDType(dtype) != nil {
			return nil, nil, fmt.Errorf("--engine %s: %w", name, checkDType(dtype))
		}
		half := dtype == "bfloat16"
		steps = append(steps, way{name, &form{backend: spec, bfloat16: half}})
		samplers = append(samplers, way{name, &sampling{backend: spec, bfloat16: half}})
	}
	return steps, samplers, nil
}

// engines measures sampling on one model.
func (o *drawOptions) engines(preset string, ways []way, out io.Writer) error {
	world, err := promptWorld(preset, o.groups, 1, o.prompts[0], o.fresh, nil)
	launches := func(world string) []launch { return allOn(world, ways) }
	return play(world, err, launches, func(sides []*side) error {
		all, err := o.alternate(sides, "sample")
		if err != nil {
			return err
		}
		rates(out, fmt.Sprintf("sampling, %s, batch %d, prompt %d + %d new tokens", preset, o.groups, o.prompts[0],
			o.fresh), all, o.groups*o.fresh)
		return nil
	})
}
