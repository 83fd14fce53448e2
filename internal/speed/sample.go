package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/gomlx/compute"
	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/rollout"
)

// sampleOptions are the options of the comparison of sampling.
type sampleOptions struct {
	options
	batches       []int
	prompt, fresh int
}

func newSample() *cobra.Command {
	o := &sampleOptions{options: options{presets: []string{"5.4M", "56M"}}}
	cmd := newComparison(&o.options, "sample",
		"Sampling against transformers' generate and a plain PyTorch loop over a cache", o.compare)
	flags := cmd.Flags()
	flags.IntSliceVar(&o.batches, "batch", []int{1, 16, 128}, "prompts sampled together")
	flags.IntVar(&o.prompt, "prompt", 64, "tokens of a prompt")
	flags.IntVar(&o.fresh, "new", 64, "tokens of a completion")
	return cmd
}

// compare compares the sides on one model at all batches.
func (o *sampleOptions) compare(preset string, out io.Writer) error {
	most := slices.Max(o.batches)
	world, err := promptWorld(preset, most, o.prompt, o.fresh)
	if err != nil {
		return err
	}
	python := func(name, kind string) launch {
		return o.peer(name, "peer_sample.py", "--world", world, "--side", kind)
	}
	o.Slots = max(128, most)
	return play(world, []launch{python("transformers generate", "generate"), python("PyTorch loop", "loop"),
		o.own("sample", world)}, func(sides []*side) error {
		if err := o.greedy(sides, min(greedyRows, most), out); err != nil {
			return err
		}
		for _, n := range o.batches {
			all, err := o.alternate(sides, fmt.Sprint("sample ", n), math.Inf(1))
			if err != nil {
				return err
			}
			report(out, fmt.Sprintf("sampling, %s, batch %d, prompt %d + %d new tokens, %s", preset, n, o.prompt, o.fresh,
				o.dtype), all, medianOf("tokens/s", "%.0f", func(d did) float64 { return float64(d.Tokens) / d.Seconds }))
		}
		return nil
	})
}

// greedyRows is the number of rows that greedy compares, logpTolerance how far two sides' log-probs of a token may
// differ in float32.
const greedyRows, logpTolerance = 8, 1e-3

// greedy compares the sides' greedy tokens and their log-probs before anything is measured. One row may differ, since
// rounding can decide between two tokens.
func (o *options) greedy(sides []*side, n int, out io.Writer) error {
	all := make([]did, len(sides))
	for i, s := range sides {
		if err := s.ask(fmt.Sprint("greedy ", n), &all[i]); err != nil {
			return err
		}
	}
	for i, d := range all[:len(all)-1] {
		same, worst := compareTokens(d, all[len(all)-1])
		fmt.Fprintf(out, "%s: %d of %d greedy rows the same as posttrain's, log-probs within %.1e\n", sides[i].name, same,
			n, worst)
		if !o.BFloat16 && (len(d.IDs) != n || same < n-1 || worst > logpTolerance) {
			return fmt.Errorf("%s and posttrain do not run the same model", sides[i].name)
		}
	}
	return nil
}

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

// drawer draws completions of a world's prompts.
type drawer struct {
	weights []compute.Buffer
	sampler *rollout.Cached
	world   prompts
	calls   uint64
}

func newDrawer(o opened) (_ worker, err error) {
	d := &drawer{}
	if err := readJSON(o.dir, promptsFile, &d.world); err != nil {
		return nil, err
	}
	if d.weights, err = rollout.Upload(o.engine, o.model, o.graph()); err != nil {
		return nil, err
	}
	d.sampler = rollout.NewCached(o.engine, o.model.Config, func() []compute.Buffer { return d.weights },
		rollout.Options{Graph: o.graph(), Slots: o.Slots})
	return d, nil
}

// do continues the first n prompts: with sample at temperature 1, else with the likeliest tokens, which the answer has.
// No completion ends before its length.
func (d *drawer) do(word string, n int) (a did, err error) {
	temperature := 0.0
	if word == "sample" {
		temperature = 1
		d.calls++
	}
	var requests []rollout.Request
	for i, prompt := range d.world.Prompts[:n] {
		requests = append(requests, rollout.Request{
			Sampling: rollout.Sampling{MaxNew: d.world.New, Temperature: temperature},
			Prompt:   prompt, Seed: d.calls<<32 | uint64(i), StopTokens: []int32{},
		})
	}
	completions, err := d.sampler.Sample(context.Background(), requests)
	for _, c := range completions {
		a.Tokens += len(c.Tokens)
		if temperature == 0 {
			a.IDs, a.Logps = append(a.IDs, c.Tokens), append(a.Logps, c.Logps)
		}
	}
	return a, err
}

func (d *drawer) close() {
	d.sampler.Close()
	backend.FinalizeAll(d.weights...)
}
