package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

// groupOptions are those of the comparisons of reinforcement learning.
type groupOptions struct {
	rounds
	learning
	peers
	preset  string
	prompts []int // tokens of a prompt
	groups  int
	fresh   int
	micro   int
}

func (o *groupOptions) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	o.few(7)
	o.rounds.register(flags)
	flags.StringVar(&o.backend, "backend", o.backend, "posttrain's engine")
	flags.StringVar(&o.preset, "preset", o.preset, "model, with random weights")
	flags.IntSliceVar(&o.prompts, "prompt", o.prompts, "tokens of a prompt")
	flags.IntVar(&o.groups, "groups", 8, "prompts a step")
	flags.IntVar(&o.samples, "samples", 16, "answers of each")
	flags.IntVar(&o.fresh, "new", 64, "tokens of an answer")
	flags.Float64Var(&o.rate, "rate", 1e-6, "learning rate")
}

// title tells the size of a step.
func (o *groupOptions) title(what string, length int) string {
	return fmt.Sprintf("%s, %s, %d prompts of %d tokens x %d answers of %d", what, o.preset, o.groups, length, o.samples, o.fresh)
}

// apartGoal is the training time asked for with shared prompts against without.
const apartGoal = 0.5

// newGRPOTrain measures what sharing a group's prompt saves in training.
func newGRPOTrain() *cobra.Command {
	o := &groupOptions{learning: learning{backend: "auto"}, preset: "5.4M", prompts: []int{256}}
	cmd := &cobra.Command{
		Use:     "grpo-train",
		Short:   "Training on groups: prompts shared in rows against a row for every answer",
		Example: "  go run ./bench grpo-train\n  go run ./bench grpo-train --prompt 64,256",
		Args:    cobra.NoArgs,
	}
	o.register(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		for _, n := range o.prompts {
			if err := o.shared(n, cmd.OutOrStdout()); err != nil {
				return err
			}
		}
		return nil
	}
	return cmd
}

// shared compares the update on the same groups in both layouts. Losses must agree in every round, so must the gradients'
// norms and, before the first round, all log-probs.
func (o *groupOptions) shared(length int, out io.Writer) error {
	world, err := promptWorld(o.preset, o.groups, 1, length, o.fresh)
	if world != "" {
		defer os.RemoveAll(world)
	}
	if err != nil {
		return err
	}
	var sides []*side
	defer func() { stopAll(sides) }()
	for _, apart := range []bool{true, false} {
		l := o.learning
		l.apart = apart
		s, err := startSelf(map[bool]string{true: "separate rows", false: "shared rows"}[apart], l.args(world)...)
		if err != nil {
			return err
		}
		sides = append(sides, s)
	}
	worst, err := sameLogps(sides)
	if err != nil {
		return err
	}
	all, err := o.alternate(sides, "update")
	if err != nil {
		return err
	}
	report(out, o.title("one update", length), all)
	norms := furthest(each(all[0], norm), each(all[1], norm))
	fmt.Fprintf(out, "largest difference of a log-prob %.1e, relative difference of gradients' norms %.1e\n", worst, norms)
	if norms > 10*tolerance {
		return fmt.Errorf("the gradients' norms differ by %.1e: want at most %.0e", norms, 10*tolerance)
	}
	goal(out, "shared rows / separate rows", all[1], all[0], apartGoal)
	return nil
}

// sameLogps compares the sides' log-probs of all tokens.
func sameLogps(sides []*side) (worst float64, err error) {
	var all []did
	for _, s := range sides {
		d, err := s.ask("measure")
		if err != nil {
			return 0, err
		}
		all = append(all, d)
	}
	for i, row := range all[0].Logps {
		for k := range row {
			worst = max(worst, math.Abs(float64(row[k]-all[1].Logps[i][k])))
		}
	}
	if !(worst <= tolerance) || len(all[0].Logps) == 0 {
		return worst, fmt.Errorf("log-probs of %s and %s differ by %.1e: want at most %.0e", sides[0].name, sides[1].name, worst, tolerance)
	}
	return worst, nil
}

// each is a number of every round.
func each(s *series, f func(did) float64) []float64 {
	out := make([]float64, len(s.answers))
	for i, d := range s.answers {
		out[i] = f(d)
	}
	return out
}

func norm(d did) float64 { return d.Norm }

// stepGoals are the rates asked for against TRL's, by the prompt's length.
var stepGoals = map[int]float64{64: 4, 256: 6}

// newGRPO measures a whole step.
func newGRPO() *cobra.Command {
	o := &groupOptions{learning: learning{backend: "auto"}, peers: peers{"python3", "cpu", "float32"}, preset: "5.4M", prompts: []int{64, 256}}
	cmd := &cobra.Command{
		Use:     "grpo",
		Short:   "A whole step of GRPO against TRL's GRPOTrainer with transformers' generate",
		Example: "  go run ./bench grpo --python venv/bin/python\n  go run ./bench grpo --prompt 64 --rounds 9",
		Args:    cobra.NoArgs,
	}
	o.registerStep(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return o.run(cmd.OutOrStdout()) }
	return cmd
}

func (o *groupOptions) registerStep(cmd *cobra.Command) {
	o.register(cmd)
	o.peers.register(cmd)
	cmd.Flags().IntVar(&o.micro, "micro", 0, "TRL's completions a forward pass; 0: all of a step")
	cmd.Flags().BoolVar(&o.checkpoint, "checkpoint", false, "posttrain recomputes layers in the backward pass")
}

func (o *groupOptions) run(out io.Writer) error {
	if err := o.check(); err != nil {
		return err
	}
	o.bfloat16, o.draws = o.dtype == "bfloat16", true
	for _, n := range o.prompts {
		if err := o.whole(n, out); err != nil {
			return err
		}
	}
	return nil
}

// whole compares steps at one length of prompts.
func (o *groupOptions) whole(length int, out io.Writer) error {
	world, err := promptWorld(o.preset, o.groups, 1, length, o.fresh)
	if world != "" {
		defer os.RemoveAll(world)
	}
	if err != nil {
		return err
	}
	sides, err := o.start(world)
	defer func() { stopAll(sides) }()
	if err != nil {
		return err
	}
	all, err := o.alternate(sides, "step")
	if err != nil {
		return err
	}
	steps(out, fmt.Sprintf("%s, %s", o.title("a step of GRPO", length), o.dtype), all)
	if len(all) == 1 {
		return nil
	}
	atLeast(out, all[1], all[0], stepGoals[length])
	return o.alike(all)
}

func (o *groupOptions) start(world string) (sides []*side, err error) {
	if o.python != "" {
		s, err := startPython(o.python, "peer_grpo.py", "--world", world, "--group", strconv.Itoa(o.samples), "--device", o.device, "--dtype", o.dtype,
			"--micro", strconv.Itoa(o.micro), "--kl", strconv.FormatFloat(klCoef, 'g', -1, 64), "--rate", strconv.FormatFloat(o.rate, 'g', -1, 64))
		if err != nil {
			return nil, err
		}
		s.name = "TRL"
		sides = append(sides, s)
	}
	s, err := startSelf("posttrain", o.learning.args(world)...)
	if err != nil {
		return sides, err
	}
	return append(sides, s), nil
}

// alike holds what both sides did against each other. They draw for themselves, so that means can be alike at best; their
// bounds are several times what the draws of a step of 8 x 16 x 64 tokens were seen to vary by, and wider for smaller ones.
func (o *groupOptions) alike(all []*series) error {
	wider := math.Sqrt(max(1, 8*16*64/float64(o.groups*o.samples*o.fresh)))
	for _, c := range []struct {
		what  string
		of    func(did) float64
		bound float64
	}{
		{"tokens", func(d did) float64 { return float64(d.Tokens) }, 0.05}, {"reward", func(d did) float64 { return d.Reward }, 0.05},
		{"entropy", func(d did) float64 { return d.Entropy }, 0.02}, {"gradient's norm", norm, 0.15},
	} {
		a, b := median(each(all[0], c.of)), median(each(all[1], c.of))
		if !(math.Abs(a-b) <= wider*c.bound*math.Abs(a)) {
			return fmt.Errorf("%s: %.4g on one side and %.4g on the other: they do not do the same thing", c.what, a, b)
		}
	}
	return nil
}

// steps prints the table of a comparison of whole steps.
func steps(out io.Writer, title string, all []*series) {
	fmt.Fprintf(out, "\n%s; %d rounds after the warm-up; load of the machine %s\n", title, len(all[0].seconds), load())
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "side\tmedian s\tfastest s\trollout\tscoring\ttraining\ttokens sampled\treward\tentropy\tgradient\tpeak MB\t")
	for _, s := range all {
		of := func(f func(did) float64) float64 { return median(each(s, f)) }
		fmt.Fprintf(w, "%s\t%.3f\t%.3f\t%.3f\t%.3f\t%.3f\t%.0f\t%.4f\t%.3f\t%.3f\t%.0f\t\n", s.side.title(), median(s.seconds), slices.Min(s.seconds),
			of(func(d did) float64 { return d.Rollout }), of(func(d did) float64 { return d.Scoring }), of(func(d did) float64 { return d.Training }),
			of(func(d did) float64 { return float64(d.Tokens) }), of(func(d did) float64 { return d.Reward }), of(func(d did) float64 { return d.Entropy }),
			of(norm), s.peakMB)
	}
	w.Flush()
}
