package main

import "github.com/spf13/cobra"

func newEval(s streams) *cobra.Command {
	return parent(&cobra.Command{
		Use: "eval", Short: "Measure a model",
		Example: "  posttrain eval ci --model DIR\n  posttrain eval privacylens",
	}, newEvalCI(s), newPrivacyLens(s), newEvalAlpaca(s), newEvalArena(s), newEvalMTBench(s),
		newEvalConfAIde(s), newEvalGate(s))
}
