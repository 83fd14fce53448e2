package main

import (
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/spf13/cobra"
)

// goals of the step's time against PyTorch's, by preset.
var goals = map[string]float64{"5.4M": 0.6, "56M": 0.5}

// stepOptions are those of the comparison with PyTorch.
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
	cmd := &cobra.Command{
		Use:     "step",
		Short:   "The DPO step against plain PyTorch in eager float32",
		Example: "  go run ./bench step --python venv/bin/python\n  go run ./bench step --preset 5.4M --forward --rounds 15",
		Args:    cobra.NoArgs,
	}
	flags := cmd.Flags()
	o.rounds.register(flags)
	flags.StringVar(&o.python, "python", "python3", "interpreter with PyTorch (scripts/oracle/requirements.txt)")
	flags.StringVar(&o.form.backend, "backend", "auto", "posttrain's engine")
	flags.StringSliceVar(&o.presets, "preset", []string{"5.4M", "56M"}, "models")
	flags.IntVar(&o.pairs, "pairs", o.pairs, "pairs a step")
	flags.IntVar(&o.length, "length", o.length, "tokens a row")
	flags.IntVar(&o.prompt, "prompt", o.prompt, "of these, tokens of the prompt")
	flags.BoolVar(&o.fused, "fused", false, "PyTorch's fused AdamW instead of its default")
	flags.BoolVar(&o.both, "shared", false, "a third side: posttrain with shared prompts")
	forward := flags.Bool("forward", false, "measure log-probs without gradients instead of the step")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o.word = map[bool]string{false: "step", true: "forward"}[*forward]
		for _, preset := range o.presets {
			if err := o.run(preset, cmd.OutOrStdout()); err != nil {
				return err
			}
		}
		return nil
	}
	return cmd
}

// run compares one preset: PyTorch makes the world, posttrain loads it.
func (o *stepOptions) run(preset string, out io.Writer) error {
	world, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(world)
	torch, err := o.startTorch(preset, world)
	if err != nil {
		return err
	}
	sides := []*side{torch}
	defer func() { stopAll(sides) }()
	for _, share := range []bool{false, true}[:o.ours()] {
		f := o.form
		f.share = share
		ours, err := startOurs("posttrain"+map[bool]string{true: ", shared prompts"}[share], world, f)
		if err != nil {
			return err
		}
		ours.name += " (" + ours.ready.Engine + ")"
		sides = append(sides, ours)
	}
	all, err := o.alternate(sides, o.word)
	if err != nil {
		return err
	}
	report(out, fmt.Sprintf("%s, %s, %s", o.word, preset, o.shape), all)
	if most, ok := goals[preset]; ok && o.word == "step" {
		goal(out, "posttrain / PyTorch", all[1], all[0], most)
	}
	return nil
}

// ours counts posttrain's sides.
func (o *stepOptions) ours() int {
	if o.both {
		return 2
	}
	return 1
}

func (o *stepOptions) startTorch(preset, world string) (*side, error) {
	path, err := script("peer_torch.py")
	if err != nil {
		return nil, err
	}
	args := []string{path, "--preset", preset, "--write", world, "--pairs", strconv.Itoa(o.pairs),
		"--length", strconv.Itoa(o.length), "--prompt", strconv.Itoa(o.prompt)}
	if o.fused {
		args = append(args, "--fused")
	}
	s, err := start("PyTorch", o.python, args...)
	if err != nil {
		return nil, err
	}
	s.name += " " + s.ready.Torch
	return s, nil
}
