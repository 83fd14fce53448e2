package main

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/eval/bench"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe/confaide"
)

func newEvalConfAIde(s streams) *cobra.Command {
	stage := func(stage string, help stageHelp) *cobra.Command { return confAIde.newStage(s, stage, help) }
	cmd := stage("", stageHelp{"confaide", "Measure with ConfAIde: does a model know, and keep, what is private",
		`Measure a model with ConfAIde, in tiers: 1 how sensitive information is and 2a, 2b which flows of it people
expect (correlation with people's ratings), 3 secrets in stories (who learns them, who knows them), 4 summaries and
action items of meetings (leaks and omissions). Each question is asked --samples times: the worst case counts a
question that any answer fails. No judge is needed. Two stages, which can also be run one by one: answers and
report. A run is a folder. If it is stopped at any time, the same command continues it.`,
		`  posttrain eval confaide --data confAIde/benchmark --model DIR --out runs/confaide
  posttrain eval confaide --data confAIde/benchmark --tiers 1,2a,3 --base-url http://localhost:8000/v1 --api-model NAME
  posttrain eval confaide --data confAIde/benchmark --prompts released --samples 1 --temperature 0 --model DIR`})
	cmd.AddCommand(
		stage(bench.StageAnswers, stageHelp{"answers", "Let the model under test answer the questions",
			"Let the model under test answer the questions, or take recorded answers.",
			"  posttrain eval confaide answers --data confAIde/benchmark --model DIR --out runs/confaide"}),
		stage(bench.StageReport, stageHelp{"report", "Count the answers of a run, and write the report again",
			"Count the answers of a run, and write the report.",
			"  posttrain eval confaide report --out runs/confaide"}))
	return cmd
}

// confAIde are the stages of ConfAIde.
var confAIde = staged[confaide.Options]{
	command: confaide.Command, spec: confaide.Spec, like: ", such as configs/confaide.yaml", flags: confAIdeFlags,
	uses: confaide.Uses, stages: bench.Unjudged, begins: []string{"data"}, recorded: "agent.answers", run: runConfAIde,
}

var confAIdeFlags = slices.Concat([]config.Flag{
	{Name: "data", Key: "data", Help: "folder of the benchmark's files, tier_1.txt and so on"},
	{Name: "tiers", Key: "tiers", Help: "which of 1, 2a, 2b, 3 and 4, with commas (default all)"},
	{Name: "questions", Key: "questions",
		Help: "which of tiers 3 and 4, such as free-response,control,meeting-summary (default all)"},
	{Name: "samples", Key: "samples", Help: "answers to each question (default 10)"},
	{Name: "prompts", Key: "prompts",
		Help: "file of templates, or released: prompts.jsonl in the folder of the data (default: prompts of our own)"},
	{Name: "seed", Key: "seed", Help: "seed of every random choice"},
	{Name: "first", Key: "first", Help: "use only the first N questions of each kind (0 = all)"},
	{Name: "answers", Key: "agent.answers", Help: "recorded answers instead of a model: lines of id and output"},
}, agentFlags("questions", "an answer", 1, 1024))

func runConfAIde(ctx context.Context, o confaide.Options, place bench.Place, r run.Reporter) (ran, error) {
	result, at, err := confaide.Run(ctx, o, place, r)
	return measured(result, at), err
}
