package main

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"slices"

	"github.com/spf13/cobra"
)

// drawOptions are those of a comparison between posttrain's own ways to sample, which needs no Python.
type drawOptions struct {
	rounds
	backend, preset string
	prompts         []int // tokens of a prompt
	groups, samples int
	fresh           int
}

func (o *drawOptions) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	o.few(7)
	o.rounds.register(flags)
	flags.StringVar(&o.backend, "backend", "auto", "engine")
	flags.StringVar(&o.preset, "preset", "5.4M", "model, with random weights")
	flags.IntSliceVar(&o.prompts, "prompt", o.prompts, "tokens of a prompt")
}

// groupGoals are the rates asked for with a shared prefill against without, by the prompt's length.
var groupGoals = map[int]float64{64: 1.3, 256: 2.2}

func newGroup() *cobra.Command {
	o := &drawOptions{prompts: []int{64, 256}, groups: 8, samples: 16, fresh: 64}
	cmd := &cobra.Command{
		Use:     "group",
		Short:   "Several samples of a prompt: one prefill for all against one for each",
		Example: "  go run ./bench group\n  go run ./bench group --prompt 512 --samples 4",
		Args:    cobra.NoArgs,
	}
	o.register(cmd)
	flags := cmd.Flags()
	flags.IntVar(&o.groups, "groups", o.groups, "prompts")
	flags.IntVar(&o.samples, "samples", o.samples, "samples of each")
	flags.IntVar(&o.fresh, "new", o.fresh, "tokens drawn after it")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		for _, n := range o.prompts {
			if err := o.group(n, cmd.OutOrStdout()); err != nil {
				return err
			}
		}
		return nil
	}
	return cmd
}

func (o *drawOptions) group(length int, out io.Writer) error {
	world, err := promptWorld(o.preset, o.groups, o.samples, length, o.fresh)
	if world != "" {
		defer os.RemoveAll(world)
	}
	if err != nil {
		return err
	}
	title := fmt.Sprintf("%d prompts of %d tokens x %d samples of %d, %s", o.groups, length, o.samples, o.fresh, o.preset)
	return o.compare(world, title, out, groupGoals[length], way{"a prefill each", sampling{apart: true}}, way{"shared prefill", sampling{}})
}

func newCompaction() *cobra.Command {
	o := &drawOptions{prompts: []int{64}}
	var requests, most int
	var mean float64
	cmd := &cobra.Command{
		Use:     "compaction",
		Short:   "Completions of uneven lengths: finished rows make room against all waiting for the longest",
		Example: "  go run ./bench compaction\n  go run ./bench compaction --mean 20 --cap 256",
		Args:    cobra.NoArgs,
	}
	o.register(cmd)
	flags := cmd.Flags()
	flags.IntVar(&requests, "requests", 512, "requests, each with a prompt of its own")
	flags.Float64Var(&mean, "mean", 40, "mean of their geometric lengths in tokens")
	flags.IntVar(&most, "cap", 128, "longest length")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		for _, n := range o.prompts {
			if err := o.compaction(requests, n, most, mean, cmd.OutOrStdout()); err != nil {
				return err
			}
		}
		return nil
	}
	return cmd
}

// compaction compares useful tokens: those that the requests asked for.
func (o *drawOptions) compaction(requests, length, most int, mean float64, out io.Writer) error {
	c, err := config(o.preset)
	if err != nil {
		return err
	}
	world, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(world)
	p := randomPrompts(requests, 1, length, most, c.VocabSize)
	p.Lengths = geometric(requests, most, mean)
	if err := writePrompts(world, o.preset, p); err != nil {
		return err
	}
	title := fmt.Sprintf("%d requests of %d tokens, lengths geometric with mean %g and cap %d, %s", requests, length, mean, most, o.preset)
	return o.compare(world, title, out, 1.4, way{"full batch", sampling{whole: true}}, way{"compaction", sampling{}})
}

// geometric draws lengths of at least 1 with a mean, cut at most: as if every token ended the text with chance 1/mean.
func geometric(n, most int, mean float64) []int {
	r := rand.New(rand.NewPCG(4, 4))
	out := make([]int, n)
	for i := range out {
		out[i] = min(most, 1+int(math.Log(1-r.Float64())/math.Log(1-1/mean)))
	}
	return out
}

// way is one of posttrain's own ways to sample, with a name for the table.
type way struct {
	name string
	sampling
}

// compare measures all requests of a world in several ways; the last is held against the first.
func (o *drawOptions) compare(world, title string, out io.Writer, least float64, ways ...way) error {
	p, err := readPrompts(world)
	if err != nil {
		return err
	}
	var sides []*side
	defer func() { stopAll(sides) }()
	for _, w := range ways {
		w.backend = o.backend
		s, err := startSelf(w.name, w.args(world)...)
		if err != nil {
			return err
		}
		sides = append(sides, s)
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
}

// sameDraws counts the rows in which two sides draw the same tokens. Rounding may move a draw that falls on an edge.
func sameDraws(sides []*side) (same int, err error) {
	var all []did
	for _, s := range sides {
		d, err := s.ask("draw")
		if err != nil {
			return 0, err
		}
		all = append(all, d)
	}
	first, last := all[0], all[len(all)-1]
	rows := len(first.IDs)
	same, worst := compareTokens(first, last)
	if lengths := slices.EqualFunc(first.IDs, last.IDs, func(a, b []int32) bool { return len(a) == len(b) }); !lengths || same < rows*9/10 || worst > logpTolerance {
		return 0, fmt.Errorf("%s and %s draw the same in %d of %d rows, log-probs within %.1e: they do not sample the same thing",
			sides[0].name, sides[len(sides)-1].name, same, rows, worst)
	}
	return same, nil
}
