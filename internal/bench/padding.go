package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/tokenizer"
	"github.com/posttrain/posttrain/train"
)

// newPadding counts what packing costs on real pairs. It trains nothing.
func newPadding() *cobra.Command {
	var model, path string
	var size, tokens, live, pairs int
	cmd := newCommand("padding", "Padding and compiled shapes of real pairs, counted without training",
		"  go run ./bench padding --model DIR --data pairs.jsonl.gz",
		func(out io.Writer) error {
			groups, err := readGroups(model, path)
			if err != nil {
				return err
			}
			if pairs > 0 {
				groups = groups[:min(pairs, len(groups))]
			}
			return printPadding(out, groups, size, tokens, live)
		})
	flags := cmd.Flags()
	flags.StringVar(&model, "model", "", "model folder with a tokenizer (bench/make_model.py makes one)")
	flags.StringVar(&path, "data", "", "preference pairs")
	flags.IntVar(&size, "batch", 8, "pairs a batch")
	flags.IntVar(&pairs, "pairs", 0, "use only the first N pairs; 0: all")
	flags.IntVar(&tokens, "tokens", 1024, "tokens of a piece (what the engine wants)")
	flags.IntVar(&live, "live", 6, "programs that the engine keeps")
	return cmd
}

// readGroups encodes the pairs of a file.
func readGroups(model, path string) ([]batch.Group, error) {
	t, err := tokenizer.Load(model)
	if err != nil {
		return nil, err
	}
	pairs, _, err := data.ReadPreferences(path, data.PreferenceOptions{})
	if err != nil {
		return nil, err
	}
	e := batch.Encoder{Tokenizer: t}
	groups := make([]batch.Group, len(pairs))
	for i, p := range pairs {
		if groups[i], err = e.Preference(p); err != nil {
			return nil, err
		}
	}
	return groups, nil
}

// packing sums up the batches of one epoch.
type packing struct {
	batches, pieces, tokens, padding, slots, slotPadding int
	shapes                                               map[string]int
	compiled                                             int // pieces whose program is not among those kept
}

func count(groups []batch.Group, order []int, l batch.Layout, live int) packing {
	c := packing{shapes: map[string]int{}}
	var recent []string
	for part := range slices.Chunk(order, l.Pad) {
		c.batches++
		var members []batch.Group
		for _, i := range part {
			members = append(members, groups[i])
		}
		for _, p := range batch.Split(members, l) {
			c.add(p.Packed)
			key := fmt.Sprintf("%dx%d/%d", p.Rows, p.Len, p.Slots)
			c.shapes[key]++
			if i := slices.Index(recent, key); i >= 0 {
				recent = slices.Delete(recent, i, i+1)
			} else {
				c.compiled++
			}
			recent = append(recent, key)
			if len(recent) > live {
				recent = recent[1:]
			}
		}
	}
	return c
}

func (c *packing) add(p *batch.Packed) {
	c.pieces++
	c.tokens += p.Count
	c.padding += p.Rows*p.Len - p.Count
	c.slots += p.Slots
	for _, a := range p.Answer {
		if a < 0 {
			c.slotPadding++
		}
	}
}

func printPadding(out io.Writer, groups []batch.Group, size, tokens, live int) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "layout\tbatches\tpieces\ttokens a pair\tpadding\tslot padding\tshapes\t"+
		"compilations with %d kept\t\n", live)
	few := batch.Layout{Tokens: tokens, Few: 8, Overhead: 64, Compile: 2200, Hidden: 576} // XLA's, for 135M parameters
	for _, l := range []batch.Layout{{}, {Tokens: tokens}, few} {
		for _, l.Share = range []bool{false, true} {
			l.Pad = size
			c := count(groups, train.Order(len(groups), 1, 0, true), l.Fit(groups), live)
			fmt.Fprintf(w, "%s\t%d\t%d\t%.0f\t%.1f%%\t%.1f%%\t%d\t%d\t\n", layoutName(l), c.batches, c.pieces,
				float64(c.tokens)/float64(len(groups)), 100*float64(c.padding)/float64(c.tokens+c.padding),
				100*float64(c.slotPadding)/float64(c.slots), len(c.shapes), c.compiled)
		}
	}
	return w.Flush()
}

func layoutName(l batch.Layout) string {
	name, cut := "two rows", "whole batches"
	if l.Share {
		name = "shared prompt"
	}
	if l.Tokens > 0 {
		cut = fmt.Sprintf("pieces of %d", l.Tokens)
	}
	if l.Few > 0 {
		cut += fmt.Sprintf(", at most %d shapes", l.Few)
	}
	return name + ", " + cut
}
