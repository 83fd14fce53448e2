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
			"with labels instead of pairs. Without flags it trains the embedded tiny model on embedded pairs. With\n" +
			"--mode online the pairs are the best and the worst of the model's own answers, by a reward, in\n" +
			"rounds: --data then names prompts.",
		Example: "  posttrain mappo\n" +
			"  posttrain mappo --prior none --out runs/dpo\n" +
			"  posttrain mappo --config configs/kto.yaml --model DIR --data answers.jsonl\n" +
			"  posttrain mappo --mode online\n" +
			"  posttrain mappo --mode online --model DIR --data prompts.jsonl --reward command --command ./score.py\n" +
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
	{Name: "mode", Key: "mode", Help: "offline: pairs of a file; online: pairs of the model's own answers"},
	{Name: "rounds", Key: "online.rounds", Help: "online: parts of the prompts, each answered by the model so far"},
	{Name: "samples", Key: "online.samples", Help: "online: answers to each prompt"},
	{Name: "reward", Key: "online.reward.kind", Help: "online: ci, command, judge or model"},
	{Name: "command", Key: "online.reward.command", Exact: true,
		Help: "online: the program that scores, with its arguments behind blanks"},
	{Name: "reward-model", Key: "online.reward.model.folder", Help: "online: folder of the reward model"},
}...)
