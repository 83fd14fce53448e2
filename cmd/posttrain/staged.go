package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/posttrain/posttrain/eval/bench"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/train"
)

// staged is a command whose run is a folder that stages fill; each stage is a command below it, too. O are the options.
type staged[O any] struct {
	command  string
	spec     func(stages ...string) *config.Spec[O] // for the stages that are to run
	like     string                                 // ", such as FILE" for the help of --config; may be empty
	flags    []config.Flag                          // that set keys; a stage has those of them that it uses
	uses     func(stages []string, key string) bool
	stages   []string        // that run where none is named: answers first, then the judge, then the report
	begins   []string        // keys that give the judge's stage what a new run needs
	recorded string          // the key of a file with recorded answers
	judges   func(o *O) bool // says that the judge's stage needs no run to continue; nil: it always does
	run      func(ctx context.Context, o O, place bench.Place, r run.Reporter) (ran, error)
}

// ran is how far a call has come, after an error too.
type ran struct {
	dir   string
	stage string // the last one that was begun; "": no stage was
	cases int
	print func(s streams) error // of the stage report
}

// stagedFlags are the flags of a stage, or of all of those that run by themselves.
type stagedFlags struct {
	configFlags
	stage string // "": those that run by themselves
	run   []string
}

// stageHelp are the texts of a command.
type stageHelp struct{ use, short, long, example string }

// newStage makes the command of a stage, "" of all.
func (c staged[O]) newStage(s streams, stage string, help stageHelp) *cobra.Command {
	f := &stagedFlags{configFlags: configFlags{command: c.command}, stage: stage, run: c.stages}
	if stage != "" {
		f.run = []string{stage}
	}
	cmd := &cobra.Command{
		Use: help.use, Short: help.short, Long: help.long, Example: help.example, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.execute(cmd.Context(), s, f, cmd) },
	}
	flags := cmd.Flags()
	out := fmt.Sprintf("run folder, a new one or one to continue (default: runs/%s-<time>)",
		bench.FolderName(c.command))
	if stage == bench.StageReport {
		out = "run folder"
	}
	flags.StringVar(&f.config, "config", "", "config file"+c.like+" (default: the run folder's own)")
	flags.StringArrayVar(&f.sets, "set", nil, "set any key of the config, such as judge.retries=3 (may be repeated)")
	flags.StringVar(&f.out, "out", "", out)
	flags.BoolVar(&f.quiet, "quiet", false, "print nothing but the result, warnings and errors")
	unused := func(k config.Flag) bool { return !c.uses(f.run, k.Key) }
	if c.asksModel(f.run) {
		f.fetcher.register(cmd)
	}
	f.keys = addKeyFlags(cmd, slices.DeleteFunc(slices.Clone(c.flags), unused), c.spec().TypeOf)
	return cmd
}

// folder begins the name of a run folder that the user does not name.
func (c staged[O]) folder() string {
	return strings.ReplaceAll(strings.TrimPrefix(c.command, "eval "), " ", "-")
}

func (c staged[O]) place(f *stagedFlags) bench.Place {
	return bench.Place{Dir: f.out, Stages: f.run, NewRecorded: f.config != "" || c.namesRecorded(f)}
}

// namesRecorded says that the command line names recorded answers, by their flag or with --set.
func (c staged[O]) namesRecorded(f *stagedFlags) bool {
	bySet := func(text string) bool {
		o, err := config.ParseSet(text) // load reports a fault
		return err == nil && o.Key == c.recorded && o.Value != ""
	}
	byFlag := func(k *keyFlag) bool { return k.Key == c.recorded && k.String() != "" }
	return slices.ContainsFunc(f.keys, byFlag) || slices.ContainsFunc(f.sets, bySet)
}

// load reads the config from a file, or the run folder's own, and the command line.
func (c staged[O]) load(f *stagedFlags, cmd *cobra.Command) (*O, error) {
	sets, err := f.overrides(cmd)
	if err != nil {
		return nil, err
	}
	path, err := c.path(f, sets)
	if err != nil {
		return nil, err
	}
	o, err := c.spec(f.run...).Load(config.Input{Path: path, Overrides: sets, Flags: c.flags})
	if err != nil {
		return nil, err
	}
	ready := c.place(f).Continues() || c.judges != nil && c.judges(o)
	if f.stage == bench.StageJudge && !ready {
		return nil, usageError{fmt.Errorf("--out %q: there is no run in it whose %s could be judged: "+
			"want the folder of a run%s", f.out, c.stages[0], c.orRecorded())}
	}
	return o, nil
}

// orRecorded offers the flag of recorded answers, where the stage judge has it.
func (c staged[O]) orRecorded() string {
	for _, k := range c.flags {
		if k.Key == c.recorded && c.uses([]string{bench.StageJudge}, k.Key) {
			return fmt.Sprintf(", or --%s FILE", k.Name)
		}
	}
	return ""
}

// path is the config file to read. The stages report and judge want a run to continue, unless the judge is given what a
// new run needs.
func (c staged[O]) path(f *stagedFlags, sets []config.Override) (string, error) {
	begins := func(o config.Override) bool { return slices.Contains(c.begins, o.Key) }
	switch {
	case c.place(f).Continues() && f.config == "":
		return filepath.Join(f.out, "config.yaml"), nil
	case c.place(f).Continues():
	case f.stage == bench.StageReport,
		f.stage == bench.StageJudge && f.config == "" && !slices.ContainsFunc(sets, begins):
		return "", usageError{fmt.Errorf("--out %q: there is no run in it (no config.yaml): "+
			"want the folder of a run, such as runs/%s-20260102-150405", f.out, bench.FolderName(c.command))}
	}
	return f.config, nil
}

// asksModel says that stages ask the model under test, which may be one of the hub.
func (c staged[O]) asksModel(stages []string) bool { return c.uses(stages, "agent.model") }

func (c staged[O]) execute(ctx context.Context, s streams, f *stagedFlags, cmd *cobra.Command) error {
	o, err := c.load(f, cmd)
	if err != nil {
		return err
	}
	r := run.NewReporter(s.err, s.terminal, f.quiet)
	if c.asksModel(f.run) {
		if err := f.fetcher.pin(ctx, o, r); err != nil {
			return err
		}
	}
	got, err := c.run(ctx, *o, c.place(f), r)
	if err != nil && got.stage != "" && ctx.Err() != nil {
		return fmt.Errorf("%w in stage %s: continue with %s", train.ErrInterrupted, got.stage,
			f.resumeLine(cmd, got.dir))
	}
	if missing, ok := errors.AsType[bench.MissingKey](err); ok {
		flag := map[string]string{"agent": "--api-key-env", "judge": "--judge-key-env"}[missing.Section]
		return fmt.Errorf("%w (%s)", err, flag)
	}
	if err != nil {
		return err
	}
	if got.print != nil {
		return got.print(s)
	}
	next := bench.StageReport
	if f.stage == c.stages[0] {
		next = c.stages[1]
	}
	_, err = fmt.Fprintf(s.out, "%s: %s of %d cases done; then: posttrain %s %s --out %s\n",
		got.dir, f.stage, got.cases, f.command, next, shellWord(got.dir))
	return err
}

// resumeLine is the same command line with the run folder.
func (f *stagedFlags) resumeLine(cmd *cobra.Command, dir string) string {
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

const (
	apiVersionHelp = "version of Azure OpenAI's API, such as 2024-10-21: the server is an Azure resource, the " +
		"model's name that of a deployment"
	continueHelp = "vllm: the server continues the beginning of an answer (vLLM, SGLang), so that it can be <think>"
)

// judgeFlags set the keys of a judge on a server.
var judgeFlags = []config.Flag{
	{Name: "judge-base-url", Key: "judge.base_url",
		Help: "OpenAI-compatible server of the judge (default " + bench.DefaultBaseURL + ")"},
	{Name: "judge-model", Key: "judge.model", Help: "the judge's name on the server"},
	{Name: "judge-api-version", Key: "judge.api_version", Help: apiVersionHelp},
	{Name: "judge-key-env", Key: "judge.api_key_env",
		Help: "environment variable with the judge's key (default " + bench.DefaultKeyEnv + ")"},
	{Name: "judge-parallel", Key: "judge.parallel", Help: "requests that the judge gets at the same time (default 8)"},
	{Name: "judge-timeout", Key: "judge.timeout", Help: "timeout of one request to the judge (default 1m)"},
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
}

// agentFlags set the keys of the model under test, which gives answers to cases.
func agentFlags(cases, answer string, temperature float64, tokens int) []config.Flag {
	return []config.Flag{
		{Name: "backend", Key: "agent.backend", Help: backendHelp},
		{Name: "model", Key: "agent.model", Help: "model under test: a folder in Hugging Face layout, or embedded"},
		{Name: "adapter", Key: "agent.adapter", Help: adapterHelp},
		{Name: "cache-gb", Key: "agent.cache_gb", Help: cacheHelp},
		{Name: "base-url", Key: "agent.base_url",
			Help: "OpenAI-compatible server of the model under test, such as http://localhost:8000/v1"},
		{Name: "api-model", Key: "agent.api_model", Help: "the model's name on the server"},
		{Name: "api-version", Key: "agent.api_version", Help: apiVersionHelp},
		{Name: "api-key-env", Key: "agent.api_key_env",
			Help: "environment variable with the server's key (default " + bench.DefaultKeyEnv + ")"},
		{Name: "parallel", Key: "agent.parallel", Help: "requests that the server gets at the same time (default 8)"},
		{Name: "timeout", Key: "agent.timeout", Help: "timeout of one request to the server (default 5m)"},
		{Name: "batch", Key: "agent.batch", Help: cases + " that a model folder answers together (default 16)"},
		{Name: "temperature", Key: "agent.temperature",
			Help: fmt.Sprintf("temperature of the draws; 0 is greedy (default %v)", temperature)},
		{Name: "max-new-tokens", Key: "agent.max_new_tokens",
			Help: fmt.Sprintf("most tokens of %s (default %d)", answer, tokens)},
	}
}
