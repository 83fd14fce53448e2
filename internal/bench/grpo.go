package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// groupOptions are the options of the comparisons of reinforcement learning.
type groupOptions struct {
	drawOptions
	peers
	rate       float64
	checkpoint bool
	micro      int
	vllm       bool
}

func (o *groupOptions) register(flags *pflag.FlagSet) {
	o.registerGroups(flags)
	flags.Float64Var(&o.rate, "rate", 1e-6, "learning rate")
}

// way is posttrain's side.
func (o *groupOptions) way(name string, apart bool) way {
	return way{name, &learning{backend: o.backend, bfloat16: o.dtype == "bfloat16", checkpoint: o.checkpoint,
		apart: apart, samples: o.samples, rate: o.rate}}
}

func (o *groupOptions) title(what string, length int) string {
	return fmt.Sprintf("%s, %s, %d prompts of %d tokens x %d answers of %d",
		what, o.preset, o.groups, length, o.samples, o.fresh)
}

// each is a number of every round.
func each(s *series, f func(did) float64) []float64 {
	out := make([]float64, len(s.answers))
	for i, d := range s.answers {
		out[i] = f(d)
	}
	return out
}

func tokens(d did) float64  { return float64(d.Tokens) }
func reward(d did) float64  { return d.Reward }
func entropy(d did) float64 { return d.Entropy }
func norm(d did) float64    { return d.Norm }

// stepGoals are targets for the rate over TRL's, by the prompt's length.
var stepGoals = map[int]float64{64: 4, 256: 6}

func newGRPO() *cobra.Command {
	o := &groupOptions{drawOptions: drawOptions{prompts: []int{64, 256}}, peers: onCPU}
	cmd := newCommand("grpo", "A whole step of GRPO against TRL's GRPOTrainer with transformers' generate",
		"  go run ./internal/bench grpo --python venv/bin/python\n  go run ./internal/bench grpo --prompt 64 --rounds 9",
		o.run)
	o.registerStep(cmd)
	return cmd
}

func (o *groupOptions) registerStep(cmd *cobra.Command) {
	o.register(cmd.Flags())
	o.peers.register(cmd)
	cmd.Flags().IntVar(&o.micro, "micro", 0, "TRL's completions a forward pass; 0: all of a step")
	cmd.Flags().BoolVar(&o.vllm, "vllm", false, "vLLM samples for TRL, on a GPU")
	cmd.Flags().BoolVar(&o.checkpoint, "checkpoint", false, "posttrain recomputes layers in the backward pass")
}

func (o *groupOptions) run(out io.Writer) error {
	if err := checkDType(o.dtype); err != nil {
		return err
	}
	o.draws = true
	return forEach(o.prompts, func(n int) error { return o.compareSteps(n, out) })
}

// compareSteps compares whole steps at one length of prompts.
func (o *groupOptions) compareSteps(length int, out io.Writer) error {
	world, err := o.world(length, 1)
	return play(world, err, o.launches, func(sides []*side) error {
		all, err := o.alternate(sides, "step")
		if err != nil {
			return err
		}
		printSteps(out, fmt.Sprintf("%s, %s", o.title("a step of GRPO", length), o.dtype), all)
		if len(all) == 1 {
			return nil
		}
		atLeast(out, all[1], all[0], stepGoals[length])
		if err := printStepFloor(out, all[1], all[0]); err != nil {
			return err
		}
		return o.compareMeans(all)
	})
}

// printStepFloor prints what posttrain's engine takes for the matrix products of a step alone: no step that has them is
// faster.
func printStepFloor(out io.Writer, own, peer *series) error {
	d, err := own.side.ask("products")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "the matrix products alone: rollout %.3f s, scoring %.3f s, training %.3f s, together "+
		"%.0f %% of posttrain's time; a step of nothing else would be %.2f times as fast as TRL's\n", d.Rollout, d.Scoring,
		d.Training, 100*d.Seconds/median(own.seconds), median(peer.seconds)/d.Seconds)
	return err
}

// launches are TRL, if there is a Python, and posttrain.
func (o *groupOptions) launches(world string) (all []launch) {
	if o.python != "" {
		args := []string{"internal/bench/peer_grpo.py", "--world", world,
			"--group", strconv.Itoa(o.samples), "--device", o.device, "--dtype", o.dtype,
			"--micro", strconv.Itoa(o.micro), "--kl", fmt.Sprint(klCoef), "--rate", fmt.Sprint(o.rate)}
		if o.vllm {
			args = append(args, "--vllm")
		}
		all = append(all, launch{"TRL", o.python, args})
	}
	return append(all, o.way("posttrain", false).on(world))
}

// compareMeans checks that both sides did about the same. Each samples for itself, so that only means can be close. The
// bounds are several times the variation that was seen between steps of 8 x 16 x 64 tokens, and wider for smaller
// steps.
func (o *groupOptions) compareMeans(all []*series) error {
	wider := math.Sqrt(max(1, 8*16*64/float64(o.groups*o.samples*o.fresh)))
	for _, c := range []struct {
		what  string
		of    func(did) float64
		bound float64
	}{
		{"tokens", tokens, 0.05}, {"reward", reward, 0.05}, {"entropy", entropy, 0.02}, {"gradient's norm", norm, 0.15},
	} {
		a, b := median(each(all[0], c.of)), median(each(all[1], c.of))
		if !(math.Abs(a-b) <= wider*c.bound*math.Abs(a)) {
			return fmt.Errorf("%s: %.4g on one side and %.4g on the other: they do not do the same thing", c.what, a, b)
		}
	}
	return nil
}

// printSteps prints the table of a comparison of whole steps.
func printSteps(out io.Writer, title string, all []*series) {
	header := "side\tmedian s\tfastest s\trollout\tscoring\ttraining\t" +
		"tokens sampled\treward\tentropy\tgradient\tpeak MB\t"
	table(out, fmt.Sprintf("%s; %d rounds after the warm-up", title, len(all[0].seconds)), header, func(w io.Writer) {
		for _, s := range all {
			fmt.Fprintf(w, "%s\t%.3f\t%.3f\t", s.side.title(), median(s.seconds), slices.Min(s.seconds))
			for i, f := range []func(did) float64{
				func(d did) float64 { return d.Rollout }, func(d did) float64 { return d.Scoring },
				func(d did) float64 { return d.Training }, tokens, reward, entropy, norm,
			} {
				fmt.Fprintf(w, "%.*f\t", []int{3, 3, 3, 0, 4, 3, 3}[i], median(each(s, f)))
			}
			fmt.Fprintf(w, "%.0f\t\n", s.peakMB)
		}
	})
}
