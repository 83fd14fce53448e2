package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/posttrain/posttrain/eval/privacylens"
	"github.com/posttrain/posttrain/eval/stages"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/run"
	"github.com/posttrain/posttrain/train"
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
  posttrain eval privacylens --data privacylens/ --model DIR --prompt cot --judge-model gpt-4o --out runs/pl
  posttrain eval privacylens --data privacylens/ --base-url http://localhost:8000/v1 --api-model NAME `+
			`--judge-base-url http://localhost:9000/v1 --judge-model NAME
  posttrain eval privacylens --data privacylens/ --actions actions.csv --judge replay --verdicts verdicts.json`)
	cmd.AddCommand(
		newPLStage(s, privacylens.StageActions, "actions", "Let the model under test write its final actions",
			"Let the model under test write its final action in every case, or take recorded actions.",
			"  posttrain eval privacylens actions --data privacylens/ --model DIR --out runs/pl"),
		newPLStage(s, privacylens.StageJudge, "judge", "Judge the actions of a run: leakage of every item, helpfulness",
			"Judge the actions of a run: whether they leak each sensitive item, and how helpful they are.",
			"  posttrain eval privacylens judge --out runs/pl --judge-model gpt-4o --max-cost 5 --prompt-price 2.5 "+
				"--completion-price 10"),
		newPLStage(s, privacylens.StageProbe, "probe",
			"Ask the model yes/no questions at seed, vignette and trajectory level",
			`Ask the model under test whether what each case's norm forbids is acceptable: at the levels of seed,
vignette and trajectory, every question in both orders of its choices. The stage report shows the accuracies.`,
			"  posttrain eval privacylens probe --data privacylens/ --model DIR --out runs/pl"),
		newPLStage(s, privacylens.StageReport, "report", "Count what a run has found, and write the report again",
			"Count what the other stages have found, and write the report.",
			"  posttrain eval privacylens report --out runs/pl"),
		newPLCompare(s), newPLPrompts(s))
	return cmd
}

// plFlags are the flags of a stage, or of all three.
type plFlags struct {
	configFlags
	stage string // "": actions, judge and report
}

func newPLStage(s streams, stage, use, short, long, example string) *cobra.Command {
	f := &plFlags{configFlags{command: privacylens.Command}, stage}
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long, Example: example, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runPrivacyLens(cmd.Context(), s, f, cmd) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.config, "config", "", "config file, such as configs/privacylens.yaml (default: the run "+
		"folder's own)")
	flags.StringArrayVar(&f.sets, "set", nil, "set any key of the config, such as judge.retries=3 (may be repeated)")
	out := "run folder, a new one or one to continue (default: runs/privacylens-<time>)"
	if stage == privacylens.StageReport {
		out = "run folder"
	}
	flags.StringVar(&f.out, "out", "", out)
	flags.BoolVar(&f.quiet, "quiet", false, "print nothing but the result, warnings and errors")
	unused := func(k config.Flag) bool { return !privacylens.Uses(f.stages(), k.Key) }
	f.keys = addKeyFlags(cmd, slices.DeleteFunc(slices.Clone(privacyLensFlags), unused), privacylens.Spec().TypeOf)
	return cmd
}

// privacyLensFlags set keys; a stage has those of them that it uses.
var privacyLensFlags = []config.Flag{
	{Name: "seed", Key: "seed", Help: "seed of every random choice"},
	{Name: "backend", Key: "agent.backend", Help: backendHelp},
	{Name: "data", Key: "data.cases",
		Help: "cases: a file (main_data.json), the folder with it, or embedded (an example)"},
	{Name: "first", Key: "data.first", Help: "use only the first N cases (0 = all)"},
	{Name: "prompts", Key: "prompts",
		Help: "folder of templates that replace the embedded ones (see the command prompts)"},
	{Name: "model", Key: "agent.model", Help: "model under test: a folder in Hugging Face layout, or embedded"},
	{Name: "adapter", Key: "agent.adapter", Help: adapterHelp},
	{Name: "cache-gb", Key: "agent.cache_gb", Help: cacheHelp},
	{Name: "base-url", Key: "agent.base_url",
		Help: "OpenAI-compatible server of the model under test, such as http://localhost:8000/v1"},
	{Name: "api-model", Key: "agent.api_model", Help: "the model's name on the server"},
	{Name: "api-key-env", Key: "agent.api_key_env",
		Help: "environment variable with the server's key (default " + stages.DefaultKeyEnv + ")"},
	{Name: "parallel", Key: "agent.parallel", Help: "requests that the server gets at the same time (default 8)"},
	{Name: "timeout", Key: "agent.timeout", Help: "timeout of one request to the server (default 5m)"},
	{Name: "batch", Key: "agent.batch", Help: "cases that a model folder answers together (default 16)"},
	{Name: "actions", Key: "agent.actions",
		Help: "recorded actions instead of a model: .csv, .jsonl, .json or .parquet with columns name and " +
			"final_action"},
	{Name: "prompt", Key: "agent.prompt",
		Help: "prompt of the model: naive, enhanced (asks it to guard privacy) or cot (CI-CoT) (default naive)"},
	{Name: "agent-prompts", Key: "agent.prompts",
		Help: "file of prompts that replace the templates (scripts/privacylens/export_prompts.py)"},
	{Name: "temperature", Key: "agent.temperature",
		Help: "temperature of the actions' draws; 0 is greedy (default 0.7)"},
	{Name: "max-new-tokens", Key: "agent.max_new_tokens",
		Help: "most tokens of an action with its thoughts (default 7000)"},
	{Name: "judge", Key: "judge.kind",
		Help: "model (of a server), keyword (a smoke test, never to be quoted) or replay (recorded verdicts) " +
			"(default model)"},
	{Name: "judge-base-url", Key: "judge.base_url",
		Help: "OpenAI-compatible server of the judge (default " + stages.DefaultBaseURL + ")"},
	{Name: "judge-model", Key: "judge.model", Help: "the judge's name on the server"},
	{Name: "judge-key-env", Key: "judge.api_key_env",
		Help: "environment variable with the judge's key (default " + stages.DefaultKeyEnv + ")"},
	{Name: "judge-parallel", Key: "judge.parallel", Help: "requests that the judge gets at the same time (default 8)"},
	{Name: "judge-timeout", Key: "judge.timeout", Help: "timeout of one request to the judge (default 1m)"},
	{Name: "judge-prompts", Key: "judge.prompts",
		Help: "file of prompts that replace the templates (scripts/privacylens/export_prompts.py)"},
	{Name: "judge-cache", Key: "judge.cache", Help: "file that keeps the judge's replies (default: in the run folder)"},
	{Name: "requests-per-minute", Key: "judge.requests_per_minute",
		Help: "most requests that the judge gets in a minute (0 = no limit)"},
	{Name: "tokens-per-minute", Key: "judge.tokens_per_minute",
		Help: "most tokens of prompts and replies in a minute of the judge (0 = no limit)"},
	{Name: "max-requests", Key: "judge.max_requests",
		Help: "budget: requests that this call may send to the judge (0 = no limit)"},
	{Name: "max-cost", Key: "judge.max_cost",
		Help: "budget: what this call's requests to the judge may cost (0 = no limit)"},
	{Name: "prompt-price", Key: "judge.prompt_price", Help: "price of a million tokens of the judge's prompts"},
	{Name: "completion-price", Key: "judge.completion_price", Help: "price of a million tokens of the judge's replies"},
	{Name: "verdicts", Key: "judge.verdicts",
		Help: "recorded verdicts to replay, {name: {leak_info, secret_judgment: [[item, bool], …]}}, or embedded"},
	{Name: "helpfulness", Key: "judge.helpfulness", Help: "recorded helpfulness to replay, {name: score}, or embedded"},
	{Name: "levels", Key: "probe.levels",
		Help: "levels of probing, separated by commas: seed, vignette, trajectory (default all)"},
}

func (f *plFlags) stages() []string {
	if f.stage != "" {
		return []string{f.stage}
	}
	return []string{privacylens.StageActions, privacylens.StageJudge, privacylens.StageReport}
}

func (f *plFlags) place() stages.Place {
	named := func(k *keyFlag) bool { return k.Key == "agent.actions" && k.String() != "" }
	return stages.Place{Dir: f.out, Stages: f.stages(), NewRecorded: slices.ContainsFunc(f.keys, named)}
}

// load reads the config from a file, or the run folder's own, and the command line.
func (f *plFlags) load(cmd *cobra.Command) (*privacylens.Options, error) {
	sets, err := f.overrides(cmd)
	if err != nil {
		return nil, err
	}
	path, err := f.path(sets)
	if err != nil {
		return nil, err
	}
	in := config.Input{Path: path, Overrides: sets, Flags: privacyLensFlags}
	o, err := privacylens.Spec(f.stages()...).Load(in)
	if err != nil {
		return nil, err
	}
	ready := f.place().Continues() || o.Agent.Way() == privacylens.AgentRecorded ||
		o.Judge.Kind == privacylens.KindReplay
	if f.stage == privacylens.StageJudge && !ready {
		return nil, usageError{fmt.Errorf("--out %q: there is no run in it whose actions could be judged: "+
			"want the folder of a run, or --actions FILE", f.out)}
	}
	return o, nil
}

// path is the config file to read. The stages report and judge want a run to continue, unless the judge is given what a
// new run needs.
func (f *plFlags) path(sets []config.Override) (string, error) {
	begins := func(o config.Override) bool { return o.Key == "data.cases" || o.Key == "agent.actions" }
	switch {
	case f.place().Continues() && f.config == "":
		return filepath.Join(f.out, "config.yaml"), nil
	case f.place().Continues():
	case f.stage == privacylens.StageReport,
		f.stage == privacylens.StageJudge && f.config == "" && !slices.ContainsFunc(sets, begins):
		return "", usageError{fmt.Errorf("--out %q: there is no run in it (no config.yaml): "+
			"want the folder of a run, such as runs/privacylens-20260102-150405", f.out)}
	}
	return f.config, nil
}

func runPrivacyLens(ctx context.Context, s streams, f *plFlags, cmd *cobra.Command) error {
	o, err := f.load(cmd)
	if err != nil {
		return err
	}
	got, err := privacylens.Run(ctx, *o, f.place(), run.NewReporter(s.err, s.terminal, f.quiet))
	if err != nil && got.Stage != "" && ctx.Err() != nil {
		return fmt.Errorf("%w in stage %s: continue with %s", train.ErrInterrupted, got.Stage,
			f.resumeLine(cmd, got.Dir))
	}
	if missing, ok := errors.AsType[stages.MissingKey](err); ok {
		flag := map[string]string{"agent": "--api-key-env", "judge": "--judge-key-env"}[missing.Section]
		return fmt.Errorf("%w (%s)", err, flag)
	}
	if err != nil {
		return err
	}
	if got.Stage == privacylens.StageReport {
		return printPL(s, o.Data.Cases, got)
	}
	next := privacylens.StageReport
	if f.stage == privacylens.StageActions {
		next = privacylens.StageJudge
	}
	_, err = fmt.Fprintf(s.out, "%s: %s of %d cases done; then: posttrain %s %s --out %s\n",
		got.Dir, f.stage, got.Cases, f.command, next, shellWord(got.Dir))
	return err
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
func whose(settings stages.Settings, judged bool) string {
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

// resumeLine is the same command line with the run folder.
func (f *plFlags) resumeLine(cmd *cobra.Command, dir string) string {
	words := []string{cmd.CommandPath()}
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		values := []string{flag.Value.String()}
		if list, ok := flag.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, value := range values {
			switch {
			case flag.Name == "out":
			case flag.Value.Type() == "bool":
				words = append(words, "--"+flag.Name+"="+value)
			default:
				words = append(words, "--"+flag.Name, shellWord(value))
			}
		}
	})
	return strings.Join(append(words, "--out", shellWord(dir)), " ")
}

func newPLPrompts(s streams) *cobra.Command {
	return &cobra.Command{
		Use: "prompts DIR", Short: "Write the embedded prompts into a folder, to change them for --prompts",
		Example: "  posttrain eval privacylens prompts my-prompts\n" +
			"  posttrain eval privacylens --prompts my-prompts --data privacylens/ --model DIR --judge-model gpt-4o",
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
