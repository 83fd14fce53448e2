package main

import (
	"github.com/posttrain/posttrain/eval/privacylens"

	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/posttrain/posttrain/internal/config"
)

// plStages are the stages of each command, in their order; "" is posttrain eval privacylens itself.
var plStages = map[string][]string{
	"":                       {privacylens.StageActions, privacylens.StageJudge, privacylens.StageReport},
	privacylens.StageActions: {privacylens.StageActions},
	privacylens.StageJudge:   {privacylens.StageJudge},
	privacylens.StageProbe:   {privacylens.StageProbe},
	privacylens.StageReport:  {privacylens.StageReport},
}

func newPrivacyLens(s streams) *cobra.Command {
	cmd := newPLStage(s, "", "privacylens", "Measure with PrivacyLens what an agent leaks: leakage rate, adjusted leakage rate, helpfulness",
		"Measure with PrivacyLens what an agent gives away in its last action that the recipient must not learn, and how helpful that action\n"+
			"is. Three stages, which can also be run one by one: actions (the model under test, or recorded actions), judge (a server's model,\n"+
			"recorded verdicts, or the keyword smoke test), report (tables, summary.json, cases.jsonl, and cases.html to look through). A run is\n"+
			"a folder; stopped at any time, the same command goes on. Without flags it reports an embedded example. Keys of servers come from the\n"+
			"environment (OPENAI_API_KEY, or what --api-key-env and --judge-key-env name).",
		"  posttrain eval privacylens\n"+
			"  posttrain eval privacylens --data privacylens/ --model DIR --prompt cot --judge-model gpt-4o --out runs/pl\n"+
			"  posttrain eval privacylens --data privacylens/ --base-url http://localhost:8000/v1 --api-model NAME --judge-base-url http://localhost:9000/v1 --judge-model NAME\n"+
			"  posttrain eval privacylens --data privacylens/ --actions actions.csv --judge replay --verdicts verdicts.json")
	cmd.AddCommand(
		newPLStage(s, privacylens.StageActions, "actions", "Let the model under test write its final actions", "Let the model under test write its final action in every case, or take recorded actions.",
			"  posttrain eval privacylens actions --data privacylens/ --model DIR --out runs/pl"),
		newPLStage(s, privacylens.StageJudge, "judge", "Judge the actions of a run: leakage of every item, helpfulness", "Judge the actions of a run: whether they leak each sensitive item, and how helpful they are.",
			"  posttrain eval privacylens judge --out runs/pl --judge-model gpt-4o --max-cost 5 --prompt-price 2.5 --completion-price 10"),
		newPLStage(s, privacylens.StageProbe, "probe", "Ask the model yes/no questions at seed, vignette and trajectory level",
			"Ask the model under test whether what each case's norm forbids is acceptable: at the levels of seed, vignette and trajectory, every\nquestion in both orders of its choices. The stage report shows the accuracies.",
			"  posttrain eval privacylens probe --data privacylens/ --model DIR --out runs/pl"),
		newPLStage(s, privacylens.StageReport, "report", "Count what a run has found, and write the report again", "Count what the other stages have found, and write the report.",
			"  posttrain eval privacylens report --out runs/pl"),
		newPLCompare(s), newPLPrompts(s))
	return cmd
}

// plFlags are the flags of a stage, or of all.
type plFlags struct {
	trainFlags
	stage string // "": all of them
}

func newPLStage(s streams, stage, use, short, long, example string) *cobra.Command {
	f := &plFlags{trainFlags{command: privacylens.Command}, stage}
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long, Example: example, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runPrivacyLens(cmd.Context(), s, f, cmd) },
	}
	f.registerPL(cmd)
	return cmd
}

func (f *plFlags) registerPL(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.config, "config", "", "config file, such as configs/privacylens.yaml (default: the run folder's own)")
	flags.StringArrayVar(&f.sets, "set", nil, "set any key of the config, such as judge.retries=3 (may be repeated)")
	out := "run folder, new or to go on with (default: runs/privacylens-<time>)"
	if f.stage == privacylens.StageReport {
		out = "run folder"
	}
	flags.StringVar(&f.out, "out", "", out)
	flags.BoolVar(&f.quiet, "quiet", false, "print nothing but the result and errors")
	f.keys = make([]keyFlag, 0, 64)
	for _, k := range privacyLensFlags {
		if !f.concerns(k.Key) {
			continue
		}
		f.keys = append(f.keys, keyFlag{Flag: k})
		flags.StringVar(&f.keys[len(f.keys)-1].value, k.Name, "", k.Help)
	}
}

// concerns says whether the stage heeds a key.
func (f *plFlags) concerns(key string) bool {
	section, _, _ := strings.Cut(key, ".")
	asking := []string{"agent.model", "agent.backend", "agent.batch", "agent.base_url", "agent.api_model", "agent.api_key_env", "agent.parallel", "agent.timeout"}
	switch f.stage {
	case privacylens.StageActions:
		return slices.Contains([]string{"seed", "prompts", "data", "agent"}, section)
	case privacylens.StageJudge:
		return slices.Contains([]string{"prompts", "data", "judge"}, section) || key == "agent.actions"
	case privacylens.StageProbe:
		return slices.Contains([]string{"seed", "prompts", "data", "probe"}, section) || slices.Contains(asking, key)
	case privacylens.StageReport:
		return section == "data"
	}
	return section != "probe"
}

// load makes up the config from the file, or the run folder's own, and flags.
func (f *plFlags) load(cmd *cobra.Command) (*privacylens.Options, error) {
	sets, err := f.overrides(cmd)
	if err != nil {
		return nil, err
	}
	path := f.config
	switch {
	case f.goesOn() && path == "":
		path = f.ownConfig()
	case !f.goesOn() && (f.stage == privacylens.StageReport || f.stage == privacylens.StageJudge && path == "" && !slices.ContainsFunc(sets, beginsRun)):
		return nil, usageError{fmt.Errorf("--out %q: there is no run in it (no config.yaml): want the folder of a run, such as runs/privacylens-20260102-150405", f.out)}
	}
	c, err := privacylens.Spec(plStages[f.stage]...).Load(config.Input{Path: path, Overrides: sets, Flags: privacyLensFlags})
	if err != nil {
		return nil, err
	}
	pinEngine(&c.Agent.Backend)
	if f.stage == privacylens.StageJudge && !f.goesOn() && c.Agent.Way() != privacylens.AgentRecorded && c.Judge.Kind != privacylens.KindReplay {
		return nil, usageError{fmt.Errorf("--out %q: there is no run in it whose actions could be judged: want the folder of a run, or --actions FILE", f.out)}
	}
	return c, f.checkKeys(c)
}

// beginsRun tells what a new run of the stage judge is begun with.
func beginsRun(o config.Override) bool { return o.Key == "data.cases" || o.Key == "agent.actions" }

// ownConfig is the config of the run folder.
func (f *plFlags) ownConfig() string { return filepath.Join(f.out, "config.yaml") }

// goesOn says that the run folder is of an earlier run.
func (f *plFlags) goesOn() bool {
	if f.out == "" {
		return false
	}
	_, err := os.Stat(f.ownConfig())
	return err == nil
}

// takesActions says that recorded actions are to be read: for the stage actions, and where a flag names them.
func (f *plFlags) takesActions() bool {
	return slices.Contains(plStages[f.stage], privacylens.StageActions) ||
		slices.ContainsFunc(f.keys, func(k keyFlag) bool { return k.Key == "agent.actions" && k.value != "" })
}

// checkKeys wants the keys of servers that cannot do without, ahead of anything that takes long.
func (f *plFlags) checkKeys(c *privacylens.Options) error {
	has := func(stage string) bool { return slices.Contains(plStages[f.stage], stage) }
	if c.Agent.Way() == privacylens.AgentServer && (has(privacylens.StageActions) || has(privacylens.StageProbe)) {
		if err := checkKey("agent", "--api-key-env", c.Agent.KeyEnv, c.Agent.BaseURL); err != nil {
			return err
		}
	}
	if c.Judge.Kind == privacylens.KindModel && has(privacylens.StageJudge) {
		return checkKey("judge", "--judge-key-env", c.Judge.KeyEnv, c.Judge.BaseURL)
	}
	return nil
}

// checkKey wants a key where a variable is named for it on purpose, and on OpenAI's own server. Others often need none.
func checkKey(who, flag, variable, url string) error {
	if strings.ContainsFunc(os.Getenv(variable), func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Errorf("the environment variable %s has white space or other characters in it that no key has: set it anew", variable)
	}
	if os.Getenv(variable) != "" || variable == privacylens.DefaultKeyEnv && strings.TrimRight(url, "/") != privacylens.DefaultBaseURL {
		return nil
	}
	return fmt.Errorf("no key for the %s: the environment variable %s is not set, and %s wants a key; set it, or name another with %s", who, variable, url, flag)
}

// again is the same command line with the run folder.
func (f *plFlags) again(cmd *cobra.Command, dir string) string {
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
		Example: "  posttrain eval privacylens prompts my-prompts\n  posttrain eval privacylens --prompts my-prompts --data privacylens/ --model DIR --judge-model gpt-4o",
		Args:    oneArg("folder"),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := privacylens.WritePrompts(args[0]); err != nil {
				return err
			}
			fmt.Fprintf(s.out, "%s: %s\n", args[0], strings.Join(privacylens.PromptNames(), ", "))
			return nil
		},
	}
}
