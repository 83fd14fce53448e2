package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// drawOptions are the options of a comparison on prompts.
type drawOptions struct {
	rounds
	backend, preset string
	prompts         []int // tokens of a prompt
	groups, samples int
	fresh           int
}

func (o *drawOptions) register(flags *pflag.FlagSet) {
	o.few(7)
	o.rounds.register(flags)
	flags.StringVar(&o.backend, "backend", cmp.Or(o.backend, "auto"), "posttrain's engine")
	flags.StringVar(&o.preset, "preset", cmp.Or(o.preset, "5.4M"), "model, with random weights")
	flags.IntSliceVar(&o.prompts, "prompt", o.prompts, "tokens of a prompt")
}

// registerGroups is register for a comparison that samples every prompt several times.
func (o *drawOptions) registerGroups(flags *pflag.FlagSet) {
	o.register(flags)
	flags.IntVar(&o.groups, "groups", 8, "prompts")
	flags.IntVar(&o.samples, "samples", 16, "samples of each")
	flags.IntVar(&o.fresh, "new", 64, "tokens of a sample")
}

// world makes the world of a length of prompts, each of them repeated.
func (o *drawOptions) world(length, repeated int) (string, error) {
	return promptWorld(o.preset, o.groups, repeated, length, o.fresh, nil)
}

// groupGoals are targets for the rate of a shared prefill over that of one for each sample, by the prompt's length.
var groupGoals = map[int]float64{64: 1.3, 256: 2.2}

func newGroup() *cobra.Command {
	o := &drawOptions{prompts: []int{64, 256}}
	cmd := newCommand("group", "Several samples of a prompt: one prefill for all against one for each",
		"  go run ./bench group\n  go run ./bench group --prompt 512 --samples 4",
		func(out io.Writer) error {
			return forEach(o.prompts, func(n int) error { return o.group(n, out) })
		})
	o.registerGroups(cmd.Flags())
	return cmd
}

func (o *drawOptions) group(length int, out io.Writer) error {
	world, err := o.world(length, o.samples)
	title := fmt.Sprintf("%d prompts of %d tokens x %d samples of %d, %s",
		o.groups, length, o.samples, o.fresh, o.preset)
	return o.compare(world, err, title, out, groupGoals[length],
		way{"a prefill each", &sampling{backend: o.backend, apart: true}},
		way{"shared prefill", &sampling{backend: o.backend}})
}

func newCompaction() *cobra.Command {
	o := &drawOptions{prompts: []int{64}}
	var requests, most int
	var mean float64
	cmd := newCommand("compaction", "Completions of uneven lengths: finished rows make room, or wait for the longest",
		"  go run ./bench compaction\n  go run ./bench compaction --mean 20 --cap 256",
		func(out io.Writer) error {
			return forEach(o.prompts, func(n int) error { return o.compaction(requests, n, most, mean, out) })
		})
	flags := cmd.Flags()
	o.register(flags)
	flags.IntVar(&requests, "requests", 512, "requests, each with a prompt of its own")
	flags.Float64Var(&mean, "mean", 40, "mean of their geometric lengths in tokens")
	flags.IntVar(&most, "cap", 128, "longest length")
	return cmd
}

// compaction compares the rates of useful tokens: those that the requests asked for.
func (o *drawOptions) compaction(requests, length, most int, mean float64, out io.Writer) error {
	world, err := promptWorld(o.preset, requests, 1, length, most, geometric(requests, most, mean))
	title := fmt.Sprintf("%d requests of %d tokens, lengths geometric with mean %g and cap %d, %s",
		requests, length, mean, most, o.preset)
	return o.compare(world, err, title, out, 1.4, way{"full batch", &sampling{backend: o.backend, whole: true}},
		way{"compaction", &sampling{backend: o.backend}})
}

// geometric draws lengths from 1 to most: every token ends the text with probability 1/mean, the last one surely.
func geometric(n, most int, mean float64) []int {
	r := rand.New(rand.NewPCG(4, 4))
	out := make([]int, n)
	for i := range out {
		out[i] = min(most, 1+int(math.Log(1-r.Float64())/math.Log(1-1/mean)))
	}
	return out
}

// compare measures all requests of a world in several ways; the rate of the last over the first should reach least.
func (o *drawOptions) compare(world string, err error, title string, out io.Writer, least float64, ways ...way) error {
	launches := func(world string) []launch { return allOn(world, ways) }
	return play(world, err, launches, func(sides []*side) error {
		p, err := readPrompts(world)
		if err != nil {
			return err
		}
		same, err := sameDraws(sides)
		if err != nil {
			return err
		}
		all, err := o.alternate(sides, "sample")
		if err != nil {
			return err
		}
		rates(out, title, all, p.tokens(len(p.Prompts)))
		fmt.Fprintf(out, "the same draws give the same tokens in %d of %d rows\n", same, len(p.Prompts))
		atLeast(out, all[len(all)-1], all[0], least)
		return nil
	})
}

// sameDraws counts the rows in which the first and the last side draw the same tokens. Rounding may change a few.
func sameDraws(sides []*side) (same int, err error) {
	all, err := askAll(sides, "draw")
	if err != nil {
		return 0, err
	}
	first, last := all[0], all[len(all)-1]
	rows := len(first.IDs)
	same, worst := compareTokens(first, last)
	lengths := slices.EqualFunc(first.IDs, last.IDs, func(a, b []int32) bool { return len(a) == len(b) })
	if !lengths || same < rows*9/10 || worst > logpTolerance {
		return 0, fmt.Errorf("%s and %s draw the same in %d of %d rows, log-probs within %.1e: "+
			"they do not sample the same thing",
			sides[0].name, sides[len(sides)-1].name, same, rows, worst)
	}
	return same, nil
}
