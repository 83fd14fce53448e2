package main

import (
	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/recipe/preference"
)

func newMappo(s streams) *cobra.Command {
	place := func(o *preference.Options) *recipe.Place { return &o.Place }
	c := configured[preference.Options]{preference.Spec, mappoFlags, place, summary(preference.Run)}
	return c.command(s, &cobra.Command{
		Use:   "mappo",
		Short: "Train on preference pairs with MaPPO, or plain DPO, IPO, SimPO, CPO, KTO and others",
		Long: "Train a model on preference pairs. The loss is one of the DPO family; with the MaPPO prior (arXiv\n" +
			"2507.21183) the rejected answer's term is scaled by the pair's reward gap. KTO takes single answers\n" +
			"with labels instead of pairs. Without flags it trains the embedded tiny model on embedded pairs.",
		Example: "  posttrain mappo\n" +
			"  posttrain mappo --prior none --out runs/dpo\n" +
			"  posttrain mappo --config configs/kto.yaml --model DIR --data answers.jsonl\n" +
			"  posttrain mappo --config configs/mappo-paper-dpo.yaml --model DIR --data pairs.jsonl\n" +
			"  posttrain mappo --resume runs/mappo-20260102-150405",
	})
}

var mappoFlags = trainingFlags([]config.Flag{
	{Name: "reference", Key: "reference", Help: "folder of the reference model (default: the model before training)"},
	{Name: "score-columns", Key: "data.score_columns",
		Help: "two columns with the scores of chosen and rejected, such as a,b"},
	{Name: "loss", Key: "loss.type", Help: "dpo, ipo, simpo, cpo, hinge, robust, rpo, orpo or kto"},
	{Name: "prior", Key: "loss.prior", Help: "mappo or none (the plain loss)"},
}...)
