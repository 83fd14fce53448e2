package main

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/eval/privacylens"
)

func newPLCompare(s streams) *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use: "compare A B [C...]", Short: "Compare reported runs over the same cases with the first of them",
		Long: "Compare reported runs over the same cases with the first of them, case by case: differences of\n" +
			"leakage rate, adjusted leakage rate and helpfulness with 95 % paired bootstrap intervals, the cases\n" +
			"that leak in one run only, and the exact McNemar test of these.",
		Example: "  posttrain eval privacylens compare runs/base runs/ci-rl --out comparison.json",
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
			return comparePL(s, args, out)
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "file to write the comparison to, .json")
	return cmd
}

// comparePL reads the runs, compares, and prints.
func comparePL(s streams, dirs []string, out string) error {
	var runs []privacylens.Compared
	for _, dir := range dirs {
		run, err := privacylens.ReadCompared(dir)
		if err != nil {
			return err
		}
		runs = append(runs, run)
	}
	c, err := privacylens.Compare(runs...)
	if err != nil {
		return err
	}
	if out != "" {
		if err := data.WriteJSON(out, c); err != nil {
			return err
		}
	}
	return c.Write(s.out)
}
