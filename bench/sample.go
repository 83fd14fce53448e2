package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
)

// sampleGoals are what is asked of posttrain's rate against that of generate and that of the loop, by preset and batch.
var sampleGoals = map[string]map[int][2]float64{
	"5.4M": {1: {2.4, 1.4}, 16: {2.4, 1.9}, 128: {2.3, 2.1}},
	"56M":  {1: {2, 1.4}, 16: {2, 1.9}, 128: {2, 2.1}},
}

// sampleOptions are those of the comparison of sampling with Python.
type sampleOptions struct {
	rounds
	peers
	backend       string
	presets       []string
	batches       []int
	prompt, fresh int
}

// peers says where and how the Python sides run.
type peers struct{ python, device, dtype string }

func (p *peers) check() error {
	if p.dtype != "bfloat16" && p.dtype != "float32" {
		return fmt.Errorf("--dtype %q: want bfloat16 or float32", p.dtype)
	}
	return nil
}

func (p *peers) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&p.python, "python", p.python, `interpreter with PyTorch (scripts/oracle/requirements.txt); "": posttrain alone`)
	flags.StringVar(&p.device, "device", p.device, "PyTorch's device")
	flags.StringVar(&p.dtype, "dtype", p.dtype, "float32 or bfloat16: what all sides compute in; bfloat16 is for GPUs")
}

func newSample() *cobra.Command {
	o := &sampleOptions{peers: peers{"python3", "cpu", "float32"}, backend: "auto", presets: []string{"5.4M", "56M"}, batches: []int{1, 16, 128}}
	cmd := &cobra.Command{
		Use:   "sample",
		Short: "Sampling against transformers' generate and a plain PyTorch loop over a cache",
		Example: "  go run ./bench sample --python venv/bin/python\n" +
			"  go run ./bench sample --preset 5.4M --batch 16 --rounds 15",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.OutOrStdout()) },
	}
	o.register(cmd)
	return cmd
}

func (o *sampleOptions) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	o.few(7)
	o.rounds.register(flags)
	o.peers.register(cmd)
	flags.StringVar(&o.backend, "backend", o.backend, "posttrain's engine")
	flags.StringSliceVar(&o.presets, "preset", o.presets, "models, with random weights")
	flags.IntSliceVar(&o.batches, "batch", o.batches, "prompts at a time")
	flags.IntVar(&o.prompt, "prompt", 64, "tokens of a prompt")
	flags.IntVar(&o.fresh, "new", 64, "tokens drawn after it")
}

// few makes n the number of rounds, five of them where a round takes long.
func (r *rounds) few(n int) { r.count, r.long = n, 3*time.Second }

func (o *sampleOptions) run(out io.Writer) error {
	if err := o.check(); err != nil {
		return err
	}
	for _, preset := range o.presets {
		if err := o.preset(preset, out); err != nil {
			return err
		}
	}
	return nil
}

// preset compares the sides on one model at all batches.
func (o *sampleOptions) preset(preset string, out io.Writer) error {
	world, err := promptWorld(preset, slices.Max(o.batches), 1, o.prompt, o.fresh)
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
	if err := o.greedy(sides, preset, out); err != nil {
		return err
	}
	for _, batch := range o.batches {
		all, err := o.alternate(sides, fmt.Sprintf("sample %d", batch))
		if err != nil {
			return err
		}
		rates(out, fmt.Sprintf("sampling, %s, batch %d, prompt %d + %d new tokens, %s", preset, batch, o.prompt, o.fresh, o.dtype), all, batch*o.fresh)
		for i, to := range all[:len(all)-1] {
			atLeast(out, all[len(all)-1], to, sampleGoals[preset][batch][i])
		}
	}
	return nil
}

// start runs the sides on a world: Python's two, where there is a Python, and posttrain last.
func (o *sampleOptions) start(world string) (sides []*side, err error) {
	for _, kind := range []string{"generate", "loop"} {
		if o.python == "" {
			break
		}
		s, err := startPython(o.python, "peer_sample.py", "--world", world, "--side", kind, "--device", o.device, "--dtype", o.dtype)
		if err != nil {
			return sides, err
		}
		s.name = map[string]string{"generate": "transformers generate", "loop": "PyTorch loop"}[kind]
		sides = append(sides, s)
	}
	s, err := startSelf("posttrain", sampling{backend: o.backend, bfloat16: o.dtype == "bfloat16", slots: max(128, slices.Max(o.batches))}.args(world)...)
	if err != nil {
		return sides, err
	}
	return append(sides, s), nil
}

// greedyRows are checked before anything is measured.
const greedyRows = 8

// greedy holds the sides' greedy tokens, and the log-probs of those that give them, against each other. Where rounding
// decides between two tokens, a row goes its own way: one may.
func (o *sampleOptions) greedy(sides []*side, preset string, out io.Writer) error {
	n := min(greedyRows, slices.Max(o.batches))
	var all []did
	for _, s := range sides {
		d, err := s.ask(fmt.Sprintf("greedy %d", n))
		if err != nil {
			return err
		}
		all = append(all, d)
	}
	own := all[len(all)-1]
	for i, d := range all[:len(all)-1] {
		same, worst := compareTokens(d, own)
		fmt.Fprintf(out, "%s, %s: %d of %d greedy rows the same as posttrain's, log-probs within %.1e\n", preset, sides[i].name, same, n, worst)
		if o.dtype == "float32" && (len(d.IDs) != n || same < n-1 || worst > logpTolerance) {
			return fmt.Errorf("%s and posttrain do not run the same model", sides[i].name)
		}
	}
	return nil
}

// logpTolerance is of one token's log-prob in float32 between sides.
const logpTolerance = 1e-3

// compareTokens counts the rows that are equal, and finds the largest difference of their log-probs, where both have any.
func compareTokens(a, b did) (same int, worst float64) {
	for i := range min(len(a.IDs), len(b.IDs)) {
		if !slices.Equal(a.IDs[i], b.IDs[i]) {
			continue
		}
		same++
		for k := range a.IDs[i] {
			if a.Logps != nil && b.Logps != nil {
				worst = max(worst, math.Abs(float64(a.Logps[i][k]-b.Logps[i][k])))
			}
		}
	}
	return same, worst
}

// rates prints the table of a comparison of sampling; ratios are those of the first side's time to the others'.
func rates(out io.Writer, title string, all []*series, tokens int) {
	fmt.Fprintf(out, "\n%s; %d rounds after the warm-up; load of the machine %s\n", title, len(all[0].seconds), load())
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "side\tmedian s\tfastest s\ttokens/s\tat the fastest\tpeak MB\trate to the first's\tround by round, quartiles\t")
	for _, s := range all {
		r := ratios(all[0], s)
		m, f := median(s.seconds), slices.Min(s.seconds)
		fmt.Fprintf(w, "%s\t%.4f\t%.4f\t%.0f\t%.0f\t%.0f\t%.2f\t%.2f (%.2f to %.2f)\t\n", s.side.title(), m, f, float64(tokens)/m, float64(tokens)/f, s.peakMB,
			median(all[0].seconds)/m, median(r), quantile(r, 0.25), quantile(r, 0.75))
	}
	w.Flush()
}
