package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/gomlx/compute"
	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/backend"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/rollout"
)

// sampling is how posttrain samples in a comparison.
type sampling struct {
	backend  string
	bfloat16 bool
	apart    bool // every request reads its prompt for itself
	whole    bool // finished rows stay until the longest one ends
}

func (s sampling) args(world string) []string {
	return []string{"serve-sampler", world, "--backend=" + s.backend, fmt.Sprintf("--bfloat16=%v", s.bfloat16),
		fmt.Sprintf("--apart=%v", s.apart), fmt.Sprintf("--whole=%v", s.whole)}
}

func (s sampling) options() rollout.Options {
	o := rollout.Options{NoSharing: s.apart, NoCompaction: s.whole}
	if s.bfloat16 {
		o.Graph.DType = bfloat16
	}
	return o
}

// newServeSampler is posttrain's side of the comparisons of sampling.
func newServeSampler() *cobra.Command {
	var s sampling
	cmd := &cobra.Command{
		Use:    "serve-sampler DIR",
		Short:  "posttrain's side: a batch of completions for each line read, as peer_sample.py does it",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return serveSampler(args[0], s, cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&s.backend, "backend", "auto", "engine")
	flags.BoolVar(&s.bfloat16, "bfloat16", false, "compute in bfloat16")
	flags.BoolVar(&s.apart, "apart", false, "no prompt is shared")
	flags.BoolVar(&s.whole, "whole", false, "no compaction")
	return cmd
}

// drawer draws completions of a world's prompts.
type drawer struct {
	engine  *backend.Engine
	weights []compute.Buffer
	sampler *rollout.Cached
	world   *prompts
	calls   uint64
}

func openDrawer(dir string, s sampling) (d *drawer, m *model.Model, err error) {
	d = &drawer{}
	if d.world, err = readPrompts(dir); err != nil {
		return nil, nil, err
	}
	if m, err = model.Load(dir); err != nil {
		return nil, nil, err
	}
	if d.engine, err = backend.Open(s.backend); err != nil {
		return nil, nil, err
	}
	if d.weights, err = rollout.Upload(d.engine, m); err != nil {
		d.engine.Close()
		return nil, nil, err
	}
	d.sampler = rollout.NewCached(d.engine, m.Config, func() []compute.Buffer { return d.weights }, s.options())
	return d, m, nil
}

func (d *drawer) close() {
	d.sampler.Close()
	backend.FinalizeAll(d.weights...)
	d.engine.Close()
}

func serveSampler(dir string, s sampling, in io.Reader, out io.Writer) error {
	d, m, err := openDrawer(dir, s)
	if err != nil {
		return err
	}
	defer d.close()
	say := json.NewEncoder(out).Encode
	if err := say(ready{Ready: true, Engine: d.engine.Name, Parameters: m.Config.ParamCount(), Tokens: d.world.New}); err != nil {
		return err
	}
	return obey(in, say, "sample N, greedy N, draw N or quit", map[string]work{
		"sample": func(n int) (did, error) { d.calls++; return d.answer(n, 1, d.calls, false) },
		"greedy": func(n int) (did, error) { return d.answer(n, 0, 0, true) },
		"draw":   func(n int) (did, error) { return d.answer(n, 1, 0, true) },
	})
}

// answer continues the first n prompts (0: all), none of them to an end of its own; show adds the tokens.
func (d *drawer) answer(n int, temperature float64, seed uint64, show bool) (a did, err error) {
	if n == 0 {
		n = len(d.world.Prompts)
	}
	if n > len(d.world.Prompts) {
		return a, fmt.Errorf("%d prompts asked for: there are %d", n, len(d.world.Prompts))
	}
	requests := make([]rollout.Request, n)
	for i := range requests {
		requests[i] = rollout.Request{Prompt: d.world.Prompts[i], MaxNew: d.world.length(i), Temperature: temperature,
			Seed: seed<<32 | uint64(i), Stop: []int32{}}
	}
	completions, err := d.sampler.Sample(context.Background(), requests)
	if err != nil {
		return a, err
	}
	for _, c := range completions {
		a.Tokens += len(c.Tokens)
		if show {
			a.IDs, a.Logps = append(a.IDs, c.Tokens), append(a.Logps, c.Logps)
		}
	}
	return a, nil
}
