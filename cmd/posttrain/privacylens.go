package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/eval/bench"
	"github.com/posttrain/posttrain/eval/privacylens"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
)

func newPrivacyLens(s streams) *cobra.Command {
	cmd := newPLStage(s, "", "privacylens",
		"Measure with PrivacyLens what an agent leaks: leakage rate, adjusted leakage rate, helpfulness",
		`Measure with PrivacyLens what an agent gives away in its last action that the recipient must not learn,
and how helpful that action is. Three stages, which can also be run one by one: actions (the model under
test, or recorded actions), judge (a server's model, recorded verdicts, or the keyword smoke test), and
report (tables, summary.json, cases.jsonl, and cases.html to look through). A run is a folder. If it is
stopped at any time, the same command continues it. Without flags it reports an embedded example. Keys of
servers come from the environment (OPENAI_API_KEY, or what --api-key-env and --judge-key-env name).`,
		`  posttrain eval privacylens
  posttrain eval privacylens --data privacylens/ --model DIR --prompt cot --judge-model gpt-4o-2024-11-20
  posttrain eval privacylens --data privacylens/ --base-url http://localhost:8000/v1 --api-model NAME `+
			`--judge-base-url http://localhost:9000/v1 --judge-model NAME
  posttrain eval privacylens --data PrivacyLens/data --prompts released --model DIR --judge-model gpt-4o-2024-11-20
  posttrain eval privacylens --data privacylens/ --actions actions.csv --judge replay --verdicts verdicts.json`)
	cmd.AddCommand(
		newPLStage(s, privacylens.StageActions, "actions", "Let the model under test write its final actions",
			"Let the model under test write its final action in every case, or take recorded actions.",
			"  posttrain eval privacylens actions --data privacylens/ --model DIR --out runs/pl"),
		newPLStage(s, privacylens.StageJudge, "judge", "Judge the actions of a run: leakage of every item, helpfulness",
			"Judge the actions of a run: whether they leak each sensitive item, and how helpful they are.",
			"  posttrain eval privacylens judge --out runs/pl --judge-model gpt-4o-2024-11-20 --max-cost 5 "+
				"--prompt-price 2.5 --completion-price 10"),
		newPLStage(s, privacylens.StageProbe, "probe",
			"Ask the model yes/no questions at the levels of seed, vignette and trajectory",
			`Ask the model under test whether what each case's norm forbids is acceptable: at the levels of seed,
vignette, trajectory and trajectory with the agent asked to guard privacy, every question in both orders of its
choices. The stage report shows the accuracies.`,
			`  posttrain eval privacylens probe --data privacylens/ --model DIR --out runs/pl
  posttrain eval privacylens probe --data PrivacyLens/data --prompts released --think --model DIR --out runs/pl`),
		newPLStage(s, privacylens.StageReport, "report", "Count what a run has found, and write the report again",
			"Count what the other stages have found, and write the report.",
			"  posttrain eval privacylens report --out runs/pl"),
		newPLCompare(s), newPLPrompts(s))
	return cmd
}

// privacyLens are the stages of PrivacyLens.
var privacyLens = staged[privacylens.Options]{
	command: privacylens.Command, like: ", such as configs/privacylens.yaml",
	spec: privacylens.Spec, flags: privacyLensFlags, uses: privacylens.Uses,
	stages:   []string{privacylens.StageActions, privacylens.StageJudge, privacylens.StageReport},
	begins:   []string{"data.cases", "agent.actions"},
	recorded: "agent.actions",
	judges: func(o *privacylens.Options) bool {
		return o.Agent.Way() == privacylens.AgentRecorded || o.Judge.Kind == privacylens.KindReplay
	},
	run: runPrivacyLens,
}

func newPLStage(s streams, stage, use, short, long, example string) *cobra.Command {
	return privacyLens.newStage(s, stage, stageHelp{use, short, long, example})
}

// privacyLensFlags set keys; a stage has those of them that it uses.
var privacyLensFlags = slices.Concat([]config.Flag{
	{Name: "seed", Key: "seed", Help: "seed of every random choice"},
	{Name: "data", Key: "data.cases",
		Help: "cases: a file (main_data.json), the folder with it, or embedded (an example)"},
	{Name: "first", Key: "data.first", Help: "use only the first N cases (0 = all)"},
	{Name: "prompts", Key: "prompts",
		Help: "released: prompts.jsonl beside the cases (scripts/privacylens/export_prompts.py writes it); or such a " +
			"file; or a folder of templates (see the command prompts) (default: prompts of our own)"},
	{Name: "actions", Key: "agent.actions",
		Help: "recorded actions instead of a model: .csv, .jsonl, .json or .parquet with columns name and " +
			"final_action"},
	{Name: "prompt", Key: "agent.prompt",
		Help: "prompt of the model: naive, enhanced (asks it to guard privacy) or cot (CI-CoT) (default naive)"},
	{Name: "continue", Key: "agent.continue", Help: continueHelp},
	{Name: "agent-prompts", Key: "agent.prompts",
		Help: "file of prompts that replace the templates (scripts/privacylens/export_prompts.py)"},
	{Name: "judge", Key: "judge.kind",
		Help: "model (of a server), keyword (a smoke test, never to be quoted) or replay (recorded verdicts) " +
			"(default model)"},
	{Name: "judge-prompts", Key: "judge.prompts",
		Help: "file of prompts that replace the templates (scripts/privacylens/export_prompts.py)"},
	{Name: "verdicts", Key: "judge.verdicts",
		Help: "recorded verdicts to replay, {name: {leak_info, secret_judgment: [[item, bool], …]}}, or embedded"},
	{Name: "helpfulness", Key: "judge.helpfulness", Help: "recorded helpfulness to replay, {name: score}, or embedded"},
	{Name: "levels", Key: "probe.levels",
		Help: "levels of probing, separated by commas: seed, vignette, trajectory, trajectory-enhanced (default all)"},
	{Name: "think", Key: "probe.think",
		Help: "probing as CI-RL asks: the model thinks first and answers in an answer block"},
}, agentFlags("cases", "an action with its thoughts", 0.7, 7000), judgeFlags)

func runPrivacyLens(ctx context.Context, o privacylens.Options, place bench.Place, r run.Reporter) (ran, error) {
	got, err := privacylens.Run(ctx, o, place, r)
	all := ran{dir: got.Dir, stage: got.Stage, cases: got.Cases}
	if got.Stage == privacylens.StageReport {
		all.print = func(s streams) error { return printPL(s, o.Data.Cases, got) }
	}
	return all, err
}

// printPL prints a report, and where it is.
func printPL(s streams, data string, got privacylens.Result) error {
	who := whose(got.Summary.Settings, len(got.Results) > 0)
	fmt.Fprintf(s.out, "PrivacyLens, %d cases of %s: %s\n", got.Cases, shortPath(data), who)
	if err := got.Summary.Write(s.out); err != nil {
		return err
	}
	for _, name := range []string{privacylens.SummaryName, privacylens.CasesName, privacylens.PageName} {
		fmt.Fprintln(s.out, filepath.Join(got.Dir, name))
	}
	return nil
}

// whose says who was measured, and who judged.
func whose(settings bench.Settings, judged bool) string {
	if !judged {
		return shortPath(settings[privacylens.StageProbe]["model"]) + ", probed"
	}
	who, actions := "no actions", settings[privacylens.StageActions]
	switch {
	case actions["kind"] == privacylens.AgentRecorded:
		who = "recorded actions"
	case actions != nil:
		who = shortPath(actions["model"]) + ", prompt " + actions["prompt"]
	}
	judge := settings[privacylens.StageJudge]["kind"]
	switch judge {
	case privacylens.KindModel:
		judge = settings[privacylens.StageJudge]["model"]
	case privacylens.KindReplay:
		judge = "recorded verdicts"
	}
	return who + "; judge: " + judge
}

// shortPath is a path from the working directory, if it lies within that.
func shortPath(path string) string {
	if here, err := os.Getwd(); err == nil {
		if within, ok := strings.CutPrefix(path, here+string(filepath.Separator)); ok {
			return within
		}
	}
	return path
}

func newPLPrompts(s streams) *cobra.Command {
	return &cobra.Command{
		Use: "prompts DIR", Short: "Write the embedded prompts into a folder, to change them for --prompts",
		Example: "  posttrain eval privacylens prompts my-prompts\n" +
			"  posttrain eval privacylens --prompts my-prompts --data privacylens/ --model DIR " +
			"--judge-model gpt-4o-2024-11-20",
		Args: oneArg("folder"),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := privacylens.WritePrompts(args[0]); err != nil {
				return err
			}
			fmt.Fprintf(s.out, "%s: %s\n", args[0], strings.Join(privacylens.PromptNames(), ", "))
			return nil
		},
	}
}
