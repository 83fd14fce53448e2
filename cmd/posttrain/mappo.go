package main

import (
	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/recipe/preference"
)

func newMappo(s streams) *cobra.Command {
	return sweepable(s, preference.Sweeps, preference.Run, &cobra.Command{
		Use:   "mappo",
		Short: "Train on preference pairs with MaPPO, or plain DPO, IPO, SimPO, CPO, KTO and others",
		Long: "Train a model on preference pairs. The loss is one of the DPO family; with the MaPPO prior (arXiv\n" +
			"2507.21183) the rejected answer's term is scaled by the pair's reward gap. KTO takes single answers\n" +
			"with labels instead of pairs. Without flags it trains the embedded tiny model on embedded pairs. With\n" +
			"--mode online the pairs are the best and the worst of the model's own answers, by a reward, in\n" +
			"rounds: --data then names prompts.",
		Example: "  posttrain mappo\n" +
			"  posttrain mappo --prior none --out runs/dpo\n" +
			"  posttrain mappo --loss kto --model DIR --data answers.jsonl\n" +
			"  posttrain mappo --mode online\n" +
			"  posttrain mappo --mode online --model DIR --data prompts.jsonl --reward command --command ./score.py\n" +
			"  posttrain init mappo --model DIR --data pairs.jsonl --out mappo.yaml\n" +
			"  posttrain mappo --config mappo.yaml\n" +
			"  posttrain mappo --sweep loss.beta=0.05,0.1,0.2 --out runs/sweep\n" +
			"  posttrain mappo --resume runs/mappo-20260102-150405",
	})
}
