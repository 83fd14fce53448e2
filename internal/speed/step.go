package main

import (
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/adamw"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/losses"
	"github.com/posttrain/posttrain/train"
)

func newStep() *cobra.Command {
	o := &options{presets: []string{"5.4M", "56M"}}
	shape := map[string]*int{"pairs": new(4), "length": new(128), "prompt": new(64)}
	cmd := newComparison(o, "step", "The DPO step against plain PyTorch", func(preset string, out io.Writer) error {
		return o.compareSteps(preset, shape, out)
	})
	cmd.Long = `Float32 is against PyTorch in eager mode; bfloat16 is against its autocast with torch.compile and fused
AdamW, and beside posttrain's own float32.`
	for name, does := range map[string]string{"pairs": "pairs a step", "length": "tokens a row",
		"prompt": "of these, tokens of the prompt"} {
		cmd.Flags().IntVar(shape[name], name, *shape[name], does)
	}
	return cmd
}

// compareSteps compares one preset: PyTorch makes the world, posttrain loads it.
func (o *options) compareSteps(preset string, shape map[string]*int, out io.Writer) error {
	world, err := os.MkdirTemp("", "speed-")
	if err != nil {
		return err
	}
	args := []string{"--preset", preset, "--write", world}
	for name, n := range shape {
		args = append(args, "--"+name, strconv.Itoa(*n))
	}
	name := "plain step"
	if o.BFloat16 {
		args, name = append(args, "--fused", "--compile"), "autocast and compile"
	}
	all := []launch{o.peer(name, "peer_torch.py", args...), o.own("step", world)}
	if o.BFloat16 {
		whole := setup{Backend: "auto"}.own("step", world)
		whole.name += ", float32"
		all = append(all, whole)
	}
	return play(world, all, func(sides []*side) error {
		all, err := o.alternate(sides, "step", o.tolerance())
		if err == nil {
			report(out, fmt.Sprintf("step, %s, %d pairs of rows of %d tokens, prompt %d, %s", preset, *shape["pairs"],
				*shape["length"], *shape["prompt"], o.dtype), all)
		}
		return err
	})
}

// trainer repeats the step of one problem with posttrain's own Learner. Its loss is DPO without a prior.
type trainer struct {
	learner      *train.Learner
	problem      problem
	method       *train.Preference
	pairs        []train.Example
	microbatches []batch.Microbatch
}

func newTrainer(o opened) (_ worker, err error) {
	t := &trainer{}
	if err := readJSON(o.dir, problemFile, &t.problem); err != nil {
		return nil, err
	}
	if t.learner, err = train.NewLearner(o.engine, o.model, o.graph()); err != nil {
		return nil, err
	}
	groups, loss := t.problem.groups(), losses.Defaults(losses.DPO)
	loss.Prior, loss.Beta = losses.None, t.problem.Beta
	t.method = &train.Preference{Options: loss}
	t.microbatches = batch.Split(groups, t.learner.Layout(groups, false, len(groups)))
	for i, g := range groups {
		t.pairs = append(t.pairs, train.Example{Group: g,
			Reference: [2]float32{t.problem.Reference[i], t.problem.Reference[i+len(groups)]}})
	}
	return t, nil
}

// do is one update, whatever the word; the answer has the loss before it.
func (t *trainer) do(string, int) (d did, err error) {
	for _, p := range t.microbatches {
		inputs := t.method.Inputs(data.Pick(t.pairs, p.Members), p.Packed)
		loss, _, err := t.learner.Accumulate(p.Packed, t.method, inputs, 1/float64(len(t.pairs)))
		if err != nil {
			return d, err
		}
		d.Loss += loss
	}
	_, err = t.learner.Update(train.AdamW{Options: adamw.Options{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8,
		WeightDecay: t.problem.WeightDecay, MaxNorm: t.problem.MaxGradNorm}}, t.problem.LearningRate)
	return d, err
}

func (t *trainer) close() { t.learner.Close() }
