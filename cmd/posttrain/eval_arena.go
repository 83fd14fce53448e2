package main

import (
	"cmp"
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/eval/bench"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe/arena"
)

func newEvalArena(s streams) *cobra.Command {
	stage := func(stage string, help stageHelp) *cobra.Command { return arenaHard.newStage(s, stage, help) }
	cmd := stage("", stageHelp{"arena-hard", "Measure with Arena-Hard v0.1: the score against a baseline, with its " +
		"interval",
		`Measure a model with Arena-Hard v0.1: it answers questions, and a judge compares each answer with the
baseline's, in both orders. Three stages, which can also be run one by one: answers, judge and report. A run
is a folder. If it is stopped at any time, the same command continues it. With --judgments it only counts
judgements that exist. Verdicts, of which A>>B counts as three wins, give the probability of a win against
the baseline. The interval of 95 % is a bootstrap over questions.`,
		`  posttrain eval arena-hard --questions question.jsonl.gz --baseline gpt-4-0314.jsonl.gz --model DIR ` +
			`--judge-model gpt-4-1106-preview --out runs/arena
  posttrain eval arena-hard --questions question.jsonl.gz --baseline gpt-4-0314.jsonl.gz --answers mine.jsonl ` +
			`--prompts arena-hard-v0.1.yaml --judge-base-url http://localhost:9000/v1 --judge-model NAME
  posttrain eval arena-hard --judgments model.jsonl --out counted`})
	cmd.AddCommand(
		stage(bench.StageAnswers, stageHelp{"answers", "Let the model under test answer the questions",
			"Let the model under test answer the questions, or take recorded answers.",
			"  posttrain eval arena-hard answers --questions question.jsonl.gz --baseline gpt-4-0314.jsonl.gz " +
				"--model DIR --out runs/arena"}),
		stage(bench.StageJudge, stageHelp{"judge", "Let a judge compare the answers of a run with the baseline's",
			"Let a judge compare the answers of a run with the baseline's, in both orders.",
			"  posttrain eval arena-hard judge --out runs/arena --judge-model gpt-4-1106-preview --max-cost 20 " +
				"--prompt-price 10 --completion-price 30"}),
		stage(bench.StageReport, stageHelp{"report", "Count what a run has found, and write the report again",
			"Count what the other stages have found, and write the report.",
			"  posttrain eval arena-hard report --out runs/arena"}),
		newBenchCompare(s, arena.Command))
	return cmd
}

// arenaHard are the stages of Arena-Hard.
var arenaHard = staged[arena.Options]{
	command: arena.Command, spec: arena.Spec, flags: arenaFlags, uses: arena.Uses, stages: bench.All,
	begins: []string{"questions"}, recorded: "agent.answers", run: runArenaHard,
}

var arenaFlags = slices.Concat([]config.Flag{
	{Name: "questions", Key: "questions", Help: "questions, such as the benchmark's question.jsonl.gz"},
	{Name: "baseline", Key: "baseline", Help: "the baseline's answers, such as gpt-4-0314.jsonl.gz"},
	{Name: "prompts", Key: "prompts",
		Help: "the judge's prompt, such as the benchmark's arena-hard-v0.1.yaml (default: a prompt of our own)"},
	{Name: "judgments", Key: "judgments", Help: "judgements to count instead of a run: columns question_id, model, " +
		"games"},
	{Name: "rounds", Key: "rounds", Help: "rounds of the bootstrap (default 1000)"},
	{Name: "seed", Key: "seed", Help: "seed of every random choice, the bootstrap's too"},
	{Name: "first", Key: "first", Help: "use only the first N questions (0 = all)"},
	{Name: "answers", Key: "agent.answers",
		Help: "recorded answers instead of a model, in the form of the baseline's"},
}, agentFlags("questions", "an answer", 0, 4096), judgeFlags)

func runArenaHard(ctx context.Context, o arena.Options, place bench.Place, r run.Reporter) (ran, error) {
	if o.Judgements != "" {
		o.Out = cmp.Or(place.Dir, o.Out)
		counted, err := arena.Count(o, r)
		return ran{print: printed(counted)}, err
	}
	result, at, err := arena.Run(ctx, o, place, r)
	return measured(result, at), err
}
