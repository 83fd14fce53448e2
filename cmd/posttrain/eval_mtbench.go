package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/eval/bench"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe/mtbench"
)

func newEvalMTBench(s streams) *cobra.Command {
	stage := func(stage string, help stageHelp) *cobra.Command { return mtBench.newStage(s, stage, help) }
	cmd := stage("", stageHelp{"mt-bench", "Measure with MT-Bench: scores of answers in two turns, by turn and " +
		"category",
		`Measure a model with MT-Bench: it answers questions of two turns, the second of which sees its own first
answer, and a judge gives each answer a score from 1 to 10. Three stages, which can also be run one by one:
answers, judge and report. A run is a folder. If it is stopped at any time, the same command continues it.
With --judgments it only counts judgements that exist. A reply without a score does not count. Intervals
of 95 % are bootstraps over questions.`,
		`  posttrain eval mt-bench --questions question.jsonl --references reference_gpt-4.jsonl --model DIR ` +
			`--judge-model gpt-4 --out runs/mt
  posttrain eval mt-bench --questions question.jsonl --references reference_gpt-4.jsonl --answers gpt-4.jsonl ` +
			`--prompts judge_prompts.jsonl --judge-base-url http://localhost:9000/v1 --judge-model NAME
  posttrain eval mt-bench --judgments gpt-4_single.jsonl --questions question.jsonl --out counted`})
	cmd.AddCommand(
		stage(bench.StageAnswers, stageHelp{"answers", "Let the model under test answer both turns of each question",
			"Let the model under test answer both turns of each question, or take recorded answers.",
			"  posttrain eval mt-bench answers --questions question.jsonl --references reference_gpt-4.jsonl " +
				"--model DIR --out runs/mt"}),
		stage(bench.StageJudge, stageHelp{"judge", "Let a judge score the answers of a run",
			"Let a judge score the answers of a run, one by one.",
			"  posttrain eval mt-bench judge --out runs/mt --judge-model gpt-4 --max-cost 5 --prompt-price 30 " +
				"--completion-price 60"}),
		stage(bench.StageReport, stageHelp{"report", "Count what a run has found, and write the report again",
			"Count what the other stages have found, and write the report.",
			"  posttrain eval mt-bench report --out runs/mt"}),
		newBenchCompare(s, mtbench.Command))
	return cmd
}

// mtBench are the stages of MT-Bench.
var mtBench = staged[mtbench.Options]{
	command: mtbench.Command, spec: mtbench.Spec, flags: mtBenchFlags, uses: mtbench.Uses,
	stages: bench.All, begins: []string{"questions"}, recorded: "agent.answers", run: runMTBench,
}

var mtBenchFlags = slices.Concat([]config.Flag{
	{Name: "questions", Key: "questions", Help: "questions, such as the benchmark's question.jsonl"},
	{Name: "references", Key: "references",
		Help: "reference answers for math, reasoning and coding, such as reference_gpt-4.jsonl"},
	{Name: "prompts", Key: "prompts",
		Help: "the judge's prompts, such as the benchmark's judge_prompts.jsonl (default: prompts of our own)"},
	{Name: "judgments", Key: "judgments",
		Help: "judgements to count instead of a run: columns question_id, model, turn, score"},
	{Name: "seed", Key: "seed", Help: "seed of every random choice"},
	{Name: "first", Key: "first", Help: "use only the first N questions (0 = all)"},
	{Name: "answers", Key: "agent.answers",
		Help: "recorded answers instead of a model, in the form of reference_gpt-4.jsonl"},
}, byCategory(agentFlags("questions", "an answer", 0.7, 1024)), judgeFlags)

// byCategory says the default of the temperature.
func byCategory(flags []config.Flag) []config.Flag {
	for i := range flags {
		if flags[i].Name == "temperature" {
			flags[i].Help = "temperature of the draws; 0 is greedy (default: the benchmark's of each category)"
		}
	}
	return flags
}

func runMTBench(ctx context.Context, o mtbench.Options, place bench.Place, r run.Reporter) (ran, error) {
	if o.Judgements != "" {
		counted, err := mtbench.Count(o, place.Dir, r)
		return ran{print: printed(counted)}, err
	}
	result, at, err := mtbench.Run(ctx, o, place, r)
	return measured(result, at), err
}

// measured says how far a benchmark has come; result is nil without its report.
func measured[R any, P interface {
	*R
	fmt.Stringer
}](result P, at *bench.Evaluation) ran {
	got := ran{stage: at.Stage, cases: at.Cases}
	if at.Folder != nil {
		got.dir = at.Folder.Dir
	}
	if result != nil {
		got.print = printed(result)
	}
	return got
}

// printed makes a command print a result.
func printed(result fmt.Stringer) func(s streams) error {
	return func(s streams) error {
		_, err := fmt.Fprint(s.out, result)
		return err
	}
}
