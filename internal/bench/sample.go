package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// sampleGoals are targets for posttrain's rate over those of generate and of the loop, by preset and batch.
var sampleGoals = map[string]map[int][2]float64{
	"5.4M": {1: {2.4, 1.4}, 16: {2.4, 1.9}, 128: {2.3, 2.1}},
	"56M":  {1: {2, 1.4}, 16: {2, 1.9}, 128: {2, 2.1}},
}

// Names of sides.
const (
	generateSide = "transformers generate"
	loopSide     = "PyTorch loop"
)

// sampleOptions are the options of the comparison of sampling with Python.
type sampleOptions struct {
	rounds
	peers
	backend       string
	presets       []string
	batches       []int
	prompt, fresh int
	decodes       bool // print what decoding alone reaches, beside the memory's bandwidth
	limits
}

// peers says where and how the Python sides run.
type peers struct{ python, device, dtype string }

var onCPU = peers{"python3", "cpu", "float32"}

func checkDType(name string) error {
	if name != "bfloat16" && name != "float32" {
		return fmt.Errorf("--dtype %q: want bfloat16 or float32", name)
	}
	return nil
}

func (p *peers) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&p.python, "python", p.python,
		`interpreter with PyTorch (scripts/oracle/requirements.txt); "": posttrain alone`)
	flags.StringVar(&p.device, "device", p.device, "PyTorch's device")
	flags.StringVar(&p.dtype, "dtype", p.dtype, "type that all sides compute in: float32 or bfloat16")
}

func newSample() *cobra.Command {
	o := &sampleOptions{peers: onCPU, backend: "auto", presets: []string{"5.4M", "56M"}, batches: []int{1, 16, 128}}
	cmd := newCommand("sample", "Sampling against transformers' generate and a plain PyTorch loop over a cache",
		"  go run ./internal/bench sample --python venv/bin/python\n"+
			"  go run ./internal/bench sample --preset 5.4M --batch 16 --rounds 15\n"+
			"  go run ./internal/bench sample --preset models/smollm2-135m/ --batch 16,64 --dtype bfloat16 --backend xla:amx",
		o.run)
	o.register(cmd)
	return cmd
}

func (o *sampleOptions) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	o.few(7)
	o.rounds.register(flags)
	o.peers.register(cmd)
	flags.StringVar(&o.backend, "backend", o.backend, "posttrain's engine")
	flags.StringSliceVar(&o.presets, "preset", o.presets,
		"models, with random weights; or a folder, with a slash in its path")
	flags.IntSliceVar(&o.batches, "batch", o.batches, "prompts sampled together")
	flags.IntVar(&o.prompt, "prompt", 64, "tokens of a prompt")
	flags.IntVar(&o.fresh, "new", 64, "tokens of a completion")
}

func (o *sampleOptions) run(out io.Writer) error {
	if err := checkDType(o.dtype); err != nil {
		return err
	}
	return forEach(o.presets, func(preset string) error { return o.preset(preset, out) })
}

// preset compares the sides on one model at all batches.
func (o *sampleOptions) preset(preset string, out io.Writer) error {
	world, err := promptWorld(preset, slices.Max(o.batches), 1, o.prompt, o.fresh, nil)
	return play(world, err, o.launches, func(sides []*side) error {
		if err := o.greedy(sides, preset, out); err != nil {
			return err
		}
		return forEach(o.batches, func(batch int) error { return o.batch(sides, preset, batch, out) })
	})
}

func (o *sampleOptions) batch(sides []*side, preset string, batch int, out io.Writer) error {
	all, err := o.alternate(sides, fmt.Sprintf("sample %d", batch))
	if err != nil {
		return err
	}
	rates(out, fmt.Sprintf("sampling, %s, batch %d, prompt %d + %d new tokens, %s",
		preset, batch, o.prompt, o.fresh, o.dtype), all, batch*o.fresh)
	own := all[len(all)-1]
	for _, to := range all[:len(all)-1] {
		atLeast(out, own, to, o.goal(preset, batch, to.side.name))
	}
	if o.decodes {
		return o.decode(own, preset, batch, out)
	}
	return o.floors(all, batch, out)
}

// goal is the target for posttrain's rate over a side's.
func (o *sampleOptions) goal(preset string, batch int, side string) float64 {
	goals := sampleGoals[preset][batch]
	switch {
	case side == loopSide:
		return goals[1]
	case side == generateSide && strings.Contains(preset, "/") && batch >= 16:
		return map[string]float64{"float32": 3, "bfloat16": 1.3}[o.dtype]
	case side == generateSide:
		return goals[0]
	}
	return 0
}

// floors prints what the matrix products alone take at the rates of posttrain's engine and of PyTorch.
func (o *sampleOptions) floors(all []*series, batch int, out io.Writer) error {
	own, best, library := all[len(all)-1], math.Inf(1), ""
	var engine float64
	for _, s := range all {
		if s.side.name == loopSide {
			continue
		}
		d, err := s.side.ask(fmt.Sprintf("floor %d", batch))
		if err != nil {
			return err
		}
		if engine = d.Seconds; engine < best {
			best, library = engine, s.side.title()
		}
	}
	share := func(seconds float64) float64 { return 100 * seconds / median(own.seconds) }
	_, err := fmt.Fprintf(out, "the matrix products alone: %.3f s at the engine's own rate, %.0f %% of posttrain's "+
		"time; %.3f s at the best rate, that of %s, %.0f %%\n", engine, share(engine), best, library, share(best))
	return err
}

// decodeGoal is the target for decoding's share of the memory's bandwidth.
const decodeGoal = 0.6

// decode prints the rate of posttrain's tokens after the first of every row, and the bandwidth that it needs.
func (o *sampleOptions) decode(own *series, preset string, batch int, out io.Writer) error {
	first, err := o.alternate([]*side{own.side}, fmt.Sprintf("first %d", batch))
	if err != nil {
		return err
	}
	c, err := presetConfig(preset)
	if err != nil {
		return err
	}
	size := map[string]int{"float32": 4, "bfloat16": 2}[o.dtype]
	seconds := median(own.seconds) - median(first[0].seconds)
	rate := decodeBytes(c, batch, o.prompt, o.fresh, size) / seconds / 1e9
	fmt.Fprintf(out, "decoding, %s, batch %d: %.0f tokens/s without prefill, which takes %.3f s; %.1f GB/s are needed\n",
		preset, batch, float64(batch*(o.fresh-1))/seconds, median(first[0].seconds), rate)
	if limit := o.resolve().bandwidth; limit > 0 {
		reach(out, fmt.Sprintf("share of the memory's %.0f GB/s, batch %d", limit, batch), rate/limit, decodeGoal)
	}
	return nil
}

// launches are Python's two sides, if there is a Python, and posttrain.
func (o *sampleOptions) launches(world string) (all []launch) {
	python := func(name, kind string) launch {
		return launch{name, o.python, []string{"internal/bench/peer_sample.py", "--world", world, "--side", kind,
			"--device", o.device, "--dtype", o.dtype}}
	}
	if o.python != "" {
		all = append(all, python(generateSide, "generate"), python(loopSide, "loop"))
	}
	s := &sampling{backend: o.backend, bfloat16: o.dtype == "bfloat16", slots: max(128, slices.Max(o.batches))}
	return append(all, way{"posttrain", s}.on(world))
}

// greedyRows is the number of rows that greedy compares.
const greedyRows = 8

// greedy compares the sides' greedy tokens and their log-probs before anything is measured. One row may differ, since
// rounding can decide between two tokens.
func (o *sampleOptions) greedy(sides []*side, preset string, out io.Writer) error {
	n := min(greedyRows, slices.Max(o.batches))
	all, err := askAll(sides, fmt.Sprintf("greedy %d", n))
	if err != nil {
		return err
	}
	own := all[len(all)-1]
	for i, d := range all[:len(all)-1] {
		same, worst := compareTokens(d, own)
		fmt.Fprintf(out, "%s, %s: %d of %d greedy rows the same as posttrain's, log-probs within %.1e\n",
			preset, sides[i].name, same, n, worst)
		if o.dtype == "float32" && (len(d.IDs) != n || same < n-1 || worst > logpTolerance) {
			return fmt.Errorf("%s and posttrain do not run the same model", sides[i].name)
		}
	}
	return nil
}

// logpTolerance is how far two sides' log-probs of a token may differ in float32.
const logpTolerance = 1e-3

// compareTokens counts the equal rows and finds the largest difference of their log-probs, if both have them.
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

// rates prints the table of a comparison of sampling; ratios are rates over the first side's.
func rates(out io.Writer, title string, all []*series, tokens int) {
	header := "side\tmedian s\tfastest s\tCPU s\ttokens/s\tat the fastest\tpeak MB\t" +
		"rate to the first's\tround by round, quartiles\t"
	table(out, fmt.Sprintf("%s; %d rounds after the warm-up", title, len(all[0].seconds)), header, func(w io.Writer) {
		for _, s := range all {
			r := ratios(all[0], s)
			m, f := median(s.seconds), slices.Min(s.seconds)
			fmt.Fprintf(w, "%s\t%.4f\t%.4f\t%.2f\t%.0f\t%.0f\t%.0f\t%.2f\t%.2f (%.2f to %.2f)\t\n", s.side.title(), m, f,
				s.cpu(), float64(tokens)/m, float64(tokens)/f, s.peakMB, median(all[0].seconds)/m,
				median(r), quantile(r, 0.25), quantile(r, 0.75))
		}
	})
}
