package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/gomlx/compute"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/rollout"
)

// sampling is how posttrain samples in a comparison.
type sampling struct {
	backend  string
	bfloat16 bool
	apart    bool // a prefill for every request, also of the same prompt
	whole    bool // finished rows stay until the longest one ends
	slots    int  // rows decoded together; 0: posttrain's default
}

func (s *sampling) options() rollout.Options {
	return rollout.Options{Graph: form{bfloat16: s.bfloat16}.options(), Slots: s.slots, NoSharing: s.apart,
		NoCompaction: s.whole}
}

func newServeSampler() *cobra.Command {
	return newSide("a batch of completions for each line read, as peer_sample.py does it", &sampling{backend: "auto"})
}

func (s *sampling) command() string { return "serve-sampler" }

func (s *sampling) register(flags *pflag.FlagSet) {
	flags.StringVar(&s.backend, "backend", s.backend, "engine")
	flags.BoolVar(&s.bfloat16, "bfloat16", s.bfloat16, "compute in bfloat16")
	flags.BoolVar(&s.apart, "apart", s.apart, "a prefill for every request")
	flags.BoolVar(&s.whole, "whole", s.whole, "no compaction")
	flags.IntVar(&s.slots, "slots", s.slots, "rows decoded together; 0: posttrain's default")
}

// drawer draws completions of a world's prompts.
type drawer struct {
	engine  *backend.Engine
	weights []compute.Buffer
	sampler *rollout.Cached
	world   *prompts
	calls   uint64
	alone   alone

	first, last float64 // seconds of the first call and of the last one

	parameters int
}

// newDrawer puts a world's model into an engine, which the drawer closes.
func newDrawer(e *backend.Engine, dir string, s *sampling) (d *drawer, err error) {
	d = &drawer{engine: e}
	var m *model.Model
	if d.world, err = readPrompts(dir); err == nil {
		m, err = model.Load(dir)
	}
	if err == nil {
		d.weights, err = rollout.UploadIn(e, m, s.options().Graph)
	}
	if err != nil {
		e.Close()
		return nil, err
	}
	d.parameters = m.Config.ParamCount()
	d.alone = alone{e, *m.Config, s.options().Graph}
	d.sampler = rollout.NewCached(e, m.Config, func() []compute.Buffer { return d.weights }, s.options())
	return d, nil
}

func (d *drawer) close() {
	d.sampler.Close()
	backend.FinalizeAll(d.weights...)
	d.engine.Close()
}

func (s *sampling) serve(dir string, in io.Reader, out io.Writer) error {
	e, err := backend.Open(s.backend)
	if err != nil {
		return err
	}
	d, err := newDrawer(e, dir, s)
	if err != nil {
		return err
	}
	defer d.close()
	r := ready{Engine: d.engine.Name, Parameters: d.parameters, Tokens: d.world.New}
	return obey(in, out, r, "sample N, first N, greedy N, draw N, floor N or quit", map[string]work{
		"first":  func(n int) (did, error) { d.calls++; return d.prefilled(n) },
		"sample": func(n int) (did, error) { d.calls++; return d.answer(n, 1, d.calls, false) },
		"greedy": func(n int) (did, error) { return d.answer(n, 0, 0, true) },
		"draw":   func(n int) (did, error) { return d.answer(n, 1, 0, true) },
		"floor":  func(n int) (a did, err error) { a.Seconds, err = d.floor(n); return a, err },
	})
}

// prefilled is answer with one token a row: what prefill takes.
func (d *drawer) prefilled(n int) (did, error) {
	one, world := *d, *d.world
	world.New, world.Lengths = 1, nil
	one.world = &world
	return one.answer(n, 1, d.calls, false)
}

// answer continues the first n prompts (0: all). No completion ends before its length. show adds the tokens.
func (d *drawer) answer(n int, temperature float64, seed uint64, show bool) (a did, err error) {
	if n == 0 {
		n = len(d.world.Prompts)
	}
	if n > len(d.world.Prompts) {
		return a, fmt.Errorf("%d prompts asked for: there are only %d", n, len(d.world.Prompts))
	}
	requests := make([]rollout.Request, n)
	for i := range requests {
		requests[i] = rollout.Request{
			Sampling: rollout.Sampling{MaxNew: d.world.length(i), Temperature: temperature},
			Prompt:   d.world.Prompts[i], Seed: seed<<32 | uint64(i), StopTokens: []int32{},
		}
	}
	begin := time.Now()
	completions, err := d.sampler.Sample(context.Background(), requests)
	if err != nil {
		return a, err
	}
	d.last = time.Since(begin).Seconds()
	d.first = cmp.Or(d.first, d.last)
	for _, c := range completions {
		a.Tokens += len(c.Tokens)
		if show {
			a.IDs, a.Logps = append(a.IDs, c.Tokens), append(a.Logps, c.Logps)
		}
	}
	return a, nil
}
