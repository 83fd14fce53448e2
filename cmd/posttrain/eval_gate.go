package main

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/eval/bench"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe/gate"
)

func newEvalGate(s streams) *cobra.Command {
	stage := func(stage string, help stageHelp) *cobra.Command { return gates.newStage(s, stage, help) }
	cmd := stage("", stageHelp{"gate", "Fail a build when a model leaks what the norms of a policy forbid",
		`Test a model with a policy: norms that say which attributes may flow from a sender to a recipient and which
must not, with limits of leakage and a floor of utility. Each norm is expanded to --scenarios scenarios with synthetic
values, some of which ask for a message and some for a call of a tool. The gate fails, with exit code 1, when
the lower bound of a leakage is above its limit, or the upper bound of a utility is below its floor. A model within all
limits fails with a chance of 5 % at most, however many norms and channels there are. Where a limit is inside an
interval, there are too few scenarios to tell: the verdict is undecided, and --undecided says what that means. Two
stages, which can also be run one by one: answers and report. A run is a folder. If it is stopped at any time, the same
command continues it.`,
		`  posttrain eval gate --policy configs/gate-norms.yaml --model DIR --out runs/gate
  posttrain eval gate --policy configs/gate-norms.yaml --base-url http://localhost:8000/v1 --api-model NAME
  posttrain eval gate --policy configs/gate-norms.yaml --model DIR --scenarios 300 --undecided fail`})
	cmd.AddCommand(
		stage(bench.StageAnswers, stageHelp{"answers", "Let the model under test answer the scenarios",
			"Let the model under test answer the scenarios, or take recorded answers.",
			"  posttrain eval gate answers --policy configs/gate-norms.yaml --model DIR --out runs/gate"}),
		stage(bench.StageReport, stageHelp{"report", "Count the answers of a run, and give the verdict again",
			"Count the answers of a run, and give the verdict.",
			"  posttrain eval gate report --out runs/gate"}))
	return cmd
}

// gates are the stages of a gate.
var gates = staged[gate.Options]{
	command: gate.Command, spec: gate.Spec, like: ", such as configs/gate.yaml", flags: gateFlags,
	uses: gate.Uses, stages: bench.Unjudged, begins: []string{"policy"}, recorded: "agent.answers", run: runGate,
}

var gateFlags = slices.Concat([]config.Flag{
	{Name: "policy", Key: "policy", Help: "file of norms and limits, such as configs/gate-norms.yaml"},
	{Name: "scenarios", Key: "scenarios",
		Help: "scenarios of each norm that ask for a message, and as many that offer a tool (default 100)"},
	{Name: "samples", Key: "samples", Help: "answers to each scenario (default 1)"},
	{Name: "undecided", Key: "undecided",
		Help: "what too few scenarios to tell mean for the exit code: pass or fail (default pass)"},
	{Name: "junit", Key: "junit", Help: "file for the verdicts as JUnit's XML, a test case for each norm and channel"},
	{Name: "seed", Key: "seed", Help: "seed of scenarios and draws"},
	{Name: "first", Key: "first", Help: "use only the first N norms (0 = all)"},
	{Name: "answers", Key: "agent.answers", Help: "recorded answers instead of a model: lines of id and output"},
}, agentFlags("scenarios", "an answer", 0, 1024))

// runGate ends in an error, after the table, where the gate fails.
func runGate(ctx context.Context, o gate.Options, place bench.Place, r run.Reporter) (ran, error) {
	result, at, err := gate.Run(ctx, o, place, r)
	got := measured(result, at)
	if result != nil {
		got.print = func(s streams) error {
			if err := printed(result)(s); err != nil {
				return err
			}
			return result.Err()
		}
	}
	return got, err
}
