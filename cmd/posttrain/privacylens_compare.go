package main

import (
	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/eval/privacylens"
)

func newPLCompare(s streams) *cobra.Command {
	return newCompare(s,
		"Compare reported runs over the same cases with the first of them, case by case: differences of\n"+
			"leakage rate, adjusted leakage rate and helpfulness with 95 % paired bootstrap intervals, the cases\n"+
			"that leak in one run only, and the exact McNemar test of these.",
		"  posttrain eval privacylens compare runs/base runs/ci-rl --out comparison.json", comparePL)
}

// comparePL reads the runs and compares them.
func comparePL(dirs ...string) (*privacylens.Comparison, error) {
	var runs []privacylens.Compared
	for _, dir := range dirs {
		run, err := privacylens.ReadCompared(dir)
		if err != nil {
			return nil, err
		}
		runs = append(runs, run)
	}
	return privacylens.Compare(runs...)
}
