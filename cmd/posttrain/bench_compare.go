package main

import (
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/eval/bench"
)

// newBenchCompare makes the command that compares runs of a benchmark with a judge.
func newBenchCompare(s streams, benchmark string) *cobra.Command {
	return newCompare(s,
		"Compare reported runs over the same cases with the first of them, case by case: the difference\n"+
			"of the mean scores with a 95 % paired bootstrap interval, and in how many cases which run is better.",
		"  posttrain "+benchmark+" compare runs/base runs/mappo --out comparison.json",
		func(dirs ...string) (*bench.Comparison, error) { return bench.Compare(benchmark, dirs...) })
}

// newCompare makes a command that compares run folders; it writes the comparison to --out, and prints it.
func newCompare[C interface{ Write(w io.Writer) error }](s streams, long, example string,
	compare func(dirs ...string) (C, error)) *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use: "compare A B [C...]", Short: "Compare reported runs over the same cases with the first of them",
		Long: long, Example: example,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usageError{fmt.Errorf("compare wants two run folders or more, found %d", len(args))}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("out") && filepath.Ext(out) != ".json" {
				return usageError{fmt.Errorf("--out %q: want a name that ends in .json", out)}
			}
			c, err := compare(args...)
			if err == nil && out != "" {
				err = data.WriteJSON(out, c)
			}
			if err != nil {
				return err
			}
			return c.Write(s.out)
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "file to write the comparison to, .json")
	return cmd
}
