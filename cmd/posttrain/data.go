package main

import "github.com/spf13/cobra"

func newData(s streams) *cobra.Command {
	return parent(&cobra.Command{
		Use:   "data",
		Short: "Make training data (synthetic scenarios, best-of-n pairs, good answers), check it, convert it",
		Example: "  posttrain data synth --n 1000 --out demos.jsonl\n" +
			"  posttrain data pairs --model DIR --n 200 --out pairs.jsonl\n" +
			"  posttrain data check dataset.json\n" +
			"  posttrain data convert items.parquet items.json",
	},
		section{"Look at files", []*cobra.Command{newCheck(s), newShow(s), newConvert(s)}},
		section{"Make data", []*cobra.Command{newPairs(s), newSynth(s), newScore(s)}})
}
