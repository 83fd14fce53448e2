package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/gomlx/compute"
	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/rollout"
)

// capacity measures what a token costs while a cache has room for more and more.
type capacity struct {
	sampling
	dir                string
	rows, prompt, most int
	capacities         []int
	cacheGB            float64
}

func newCapacity() *cobra.Command {
	o := &capacity{sampling: sampling{backend: "xla:cpu"}, rows: 16, prompt: 64, most: 64}
	cmd := newCommand("capacity", "The cost of a token for caches of several capacities, filled to the same length",
		"  go run ./bench capacity --model DIR --backend xla:cpu", o.run)
	flags := cmd.Flags()
	o.register(flags)
	flags.StringVar(&o.dir, "model", "", "model folder")
	flags.IntVar(&o.rows, "rows", o.rows, "completions at once")
	flags.IntVar(&o.prompt, "prompt", o.prompt, "tokens of a prompt")
	flags.IntVar(&o.most, "new", o.most, "tokens that are measured")
	flags.IntSliceVar(&o.capacities, "capacity", []int{256, 1024, 4096}, "tokens of prompt and completion")
	flags.Float64Var(&o.cacheGB, "cache-gb", 0, "most memory of the cache; 0: posttrain's default")
	return cmd
}

func (o *capacity) run(out io.Writer) error {
	e, err := backend.Open(o.backend)
	if err != nil {
		return err
	}
	defer e.Close()
	m, err := model.Load(o.dir)
	if err != nil {
		return err
	}
	options := o.options()
	options.CacheGB = o.cacheGB
	weights, err := rollout.UploadIn(e, m, options.Graph)
	if err != nil {
		return err
	}
	defer backend.FinalizeAll(weights...)
	s := rollout.NewCached(e, m.Config, func() []compute.Buffer { return weights }, options)
	defer s.Close()
	return forEach(o.capacities, func(n int) error { return o.measure(s, m.Config.VocabSize, n, out) })
}

// measure prints the median time of a token: of tokens 8 and later, since the first ones compile.
func (o *capacity) measure(s *rollout.Cached, vocabulary, n int, out io.Writer) error {
	plan, err := s.Plan(o.rows, o.prompt, n-o.prompt)
	if err != nil {
		return err
	}
	var times, work []float64 // seconds of the clock, and of all cores
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	last, worked := time.Now(), cpuSeconds()
	tick := func(int32, float32) {
		now := cpuSeconds()
		times, last = append(times, time.Since(last).Seconds()), time.Now()
		work, worked = append(work, now-worked), now
		if len(times) == o.most {
			cancel(enough)
		}
	}
	requests := make([]rollout.Request, o.rows)
	for i := range requests {
		requests[i] = rollout.Request{Sampling: rollout.Sampling{MaxNew: n - o.prompt, Temperature: 1}, Seed: uint64(i),
			Prompt: make([]int32, o.prompt), StopTokens: []int32{}}
		for k := range requests[i].Prompt {
			requests[i].Prompt[k] = int32((7*i + 11*k*k + 3) % vocabulary)
		}
	}
	requests[0].OnToken = tick
	if _, err := s.Sample(ctx, requests); err != nil && !errors.Is(err, enough) {
		return err
	}
	first, skip := times[0], min(8, len(times)-1)
	median := func(x []float64) float64 {
		x = slices.Sorted(slices.Values(x[skip:]))
		return x[len(x)/2]
	}
	_, err = fmt.Fprintf(out, "capacity %d: a token of %d rows %.1f ms, of all cores %.1f ms (medians of %d), "+
		"%.0f tokens/s; first token %.1f s; %s\n", n, o.rows, 1e3*median(times), 1e3*median(work), len(times)-skip,
		float64(o.rows)/median(times), first, plan)
	return err
}
