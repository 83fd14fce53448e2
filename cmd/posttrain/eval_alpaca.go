package main

import (
	"cmp"
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/eval/bench"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe/alpaca"
)

func newEvalAlpaca(s streams) *cobra.Command {
	cmd := alpacaStages.newStage(s, "", stageHelp{"alpaca",
		"AlpacaEval 2: win rate against a baseline's outputs, standard error, length-controlled win rate",
		`Let a model answer the instructions of AlpacaEval 2, and a judge compare each output with the baseline's.
Three stages, which can also be run one by one: answers (the model under test, or recorded outputs), judge
(a server's model) and report (win rates, summary.json, cases.jsonl, and annotations.json in the benchmark's
form). A run is a folder. If it is stopped at any time, the same command continues it. With --annotations,
judgements that exist are counted. Keys of servers come from the environment (OPENAI_API_KEY, or what
--api-key-env and --judge-key-env name).`,
		`  posttrain eval alpaca --baseline baseline.jsonl.gz --model DIR --judge-model gpt-4o --out runs/alpaca
  posttrain eval alpaca --baseline baseline.jsonl.gz --answers outputs.json --judge-base-url ` +
			`http://localhost:9000/v1 --judge-model NAME
  posttrain eval alpaca --annotations annotations.json --out counted
  posttrain eval alpaca --annotations annotations.json --baseline baseline.jsonl.gz ` +
			`--others a.jsonl,b.jsonl --weights lc_weights.csv --leaderboard leaderboard.csv`})
	cmd.AddCommand(
		alpacaStages.newStage(s, bench.StageAnswers, stageHelp{"answers", "Let the model under test answer",
			"Let the model under test answer the instructions, or take recorded outputs.",
			"  posttrain eval alpaca answers --baseline baseline.jsonl.gz --model DIR --out runs/alpaca"}),
		alpacaStages.newStage(s, bench.StageJudge, stageHelp{"judge", "Let a judge compare the outputs of a run",
			"Let a judge compare each output of a run with the baseline's, in an order that the seed draws.",
			"  posttrain eval alpaca judge --out runs/alpaca --judge-model gpt-4o --max-cost 5 --prompt-price 2.5 " +
				"--completion-price 10"}),
		alpacaStages.newStage(s, bench.StageReport, stageHelp{"report", "Count the judgements of a run",
			"Count the judgements of a run, and write the report.",
			"  posttrain eval alpaca report --out runs/alpaca"}),
		newBenchCompare(s, alpaca.Command))
	return cmd
}

// alpacaStages are the stages of AlpacaEval.
var alpacaStages = staged[alpaca.Options]{
	command: alpaca.Command, spec: alpaca.Spec, flags: alpacaFlags, uses: alpaca.Uses, stages: bench.All,
	recorded: "agent.answers", run: runAlpaca,
}

func runAlpaca(ctx context.Context, o alpaca.Options, place bench.Place, r run.Reporter) (ran, error) {
	if o.Annotations != "" {
		o.Out = cmp.Or(place.Dir, o.Out)
		result, err := alpaca.Count(o, r)
		return ran{print: printed(result)}, err
	}
	result, at, err := alpaca.Run(ctx, o, place, r)
	return measured(result, at), err
}

var alpacaFlags = slices.Concat([]config.Flag{
	{Name: "annotations", Key: "annotations",
		Help: "judgements to count in place of a run: columns instruction, output_2, generator_2, preference"},
	{Name: "baseline", Key: "baseline",
		Help: "instructions with the baseline's outputs: columns instruction, output_1"},
	{Name: "others", Key: "others", Help: "files of other models' judgements, with commas between"},
	{Name: "weights", Key: "weights", Help: ".csv with the published weights of these models"},
	{Name: "leaderboard", Key: "leaderboard", Help: ".csv with published rows, to print beside"},
	{Name: "answers", Key: "agent.answers",
		Help: "recorded outputs in place of a model: columns instruction and output"},
	{Name: "seed", Key: "seed", Help: "seed of the model's draws, and of which output the judge sees first"},
	{Name: "first", Key: "first", Help: "use only the first N instructions (0 = all)"},
	{Name: "prompts", Key: "prompts",
		Help: "file of the judge's messages in place of ours (scripts/alignment/export_prompts.py)"},
}, agentFlags("instructions", "an output", 0, 2048), judgeFlags)
