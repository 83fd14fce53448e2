package main

import (
	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/recipe/pairs"
)

func newScore(s streams) *cobra.Command {
	c := configured[pairs.ScoreOptions]{spec: pairs.ScoreSpec, flags: scoreFlags, run: summary(pairs.Score)}
	return c.command(s, &cobra.Command{
		Use:   "score",
		Short: "Score the answers of preference pairs, for MaPPO's prior",
		Long: "Score both answers of each pair, and write the pairs with columns chosen_score and rejected_score.\n" +
			"--reward command runs a program on batches of answers: it reads lines {\"prompt\", \"response\"} and\n" +
			"writes a number for each. --reward judge asks a model on an OpenAI-compatible server by a rubric.\n" +
			"--reward model computes with a reward model's folder (class …ForSequenceClassification, one label).\n" +
			"Ctrl-C loses the answers under way; the same command continues.",
		Example: "  posttrain data score --reward command --command ./score.py --data pairs.jsonl --out scored.jsonl\n" +
			"  posttrain data score --reward judge --judge-base-url http://localhost:8000/v1 --judge-model NAME --data " +
			"pairs.jsonl --out scored.jsonl\n" +
			"  posttrain data score --reward model --reward-model DIR --data pairs.jsonl --out scored.jsonl",
	})
}

var scoreFlags = []config.Flag{
	{Name: "backend", Key: "reward.model.backend", Help: "the reward model's: " + backendHelp + " (default auto)"},
}
