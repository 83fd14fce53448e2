package main

import "github.com/spf13/cobra"

func newEval(s streams) *cobra.Command {
	return parent(&cobra.Command{
		Use: "eval", Short: "Measure a model: what it leaks, and how well it answers",
		Example: "  posttrain eval ci --model DIR\n  posttrain eval privacylens",
	},
		section{"Privacy", []*cobra.Command{newEvalCI(s), newPrivacyLens(s), newEvalConfAIde(s), newEvalGate(s)}},
		section{"Quality of answers", []*cobra.Command{newEvalAlpaca(s), newEvalArena(s), newEvalMTBench(s)}})
}
