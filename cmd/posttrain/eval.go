package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/eval/alpaca"
	"github.com/posttrain/posttrain/eval/arena"
	"github.com/posttrain/posttrain/eval/bench"
	"github.com/posttrain/posttrain/eval/ci"
	"github.com/posttrain/posttrain/eval/confaide"
	"github.com/posttrain/posttrain/eval/gate"
	"github.com/posttrain/posttrain/eval/mtbench"
	"github.com/posttrain/posttrain/eval/privacylens"
	"github.com/posttrain/posttrain/eval/xstest"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/train"
)

func newEval(s streams) *cobra.Command {
	return parent(&cobra.Command{
		Use: "eval", Short: "Measure a model: what it leaks, and how well it answers",
		Example: "  posttrain eval ci --model DIR\n  posttrain eval privacylens",
	},
		section{"Privacy", []*cobra.Command{newBenchmark(s, ci.Benchmark), newBenchmark(s, privacylens.Benchmark), newBenchmark(s, confaide.Benchmark),
			newBenchmark(s, gate.Benchmark), newBenchmark(s, xstest.Benchmark)}},
		section{"Quality of answers", []*cobra.Command{newBenchmark(s, alpaca.Benchmark),
			newBenchmark(s, arena.Benchmark), newBenchmark(s, mtbench.Benchmark)}},
		section{"Runs of all of these", []*cobra.Command{newEvalCompare(s)}})
}

// stagesHelp is said of every benchmark.
const stagesHelp = `

A run is a folder: answers of the model, a judge's verdicts if there is a judge, the report. If it is stopped at any
time, the same command with --out continues it. --stage runs one stage alone. Keys of servers come from the
environment (OPENAI_API_KEY, or what --api-key-env and --judge-api-key-env name).`

// newBenchmark makes the command of a benchmark.
func newBenchmark[O any, R fmt.Stringer](s streams, b *bench.Benchmark[O, R]) *cobra.Command {
	f := &configFlags{command: b.Command, known: b.Flags(), kind: b.TypeOf}
	cmd := &cobra.Command{
		Use: strings.TrimPrefix(b.Command, "eval "), Short: b.Short, Long: b.Long + stagesHelp, Example: b.Example,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runBenchmark(cmd.Context(), s, b, f, cmd) },
	}
	f.registerConfig(cmd)
	cmd.Flags().Lookup("config").Usage = "config file (default: the run folder's own)"
	cmd.Flags().StringVar(&f.out, "out", "", "run folder, a new one or one to continue (default: runs/"+
		strings.TrimPrefix(f.folder(), "eval-")+"-<time>)")
	f.registerQuiet(cmd)
	f.fetcher.register(cmd)
	return cmd
}

func runBenchmark[O any, R fmt.Stringer](ctx context.Context, s streams, b *bench.Benchmark[O, R], f *configFlags,
	cmd *cobra.Command) error {
	o, err := loadBenchmark(b, f, cmd)
	if err != nil {
		return err
	}
	options, r := b.Options(o), run.NewReporter(s.err, s.terminal, f.quiet)
	if options.Runs(bench.StageAnswers) {
		if err := f.fetcher.pin(ctx, o, r); err != nil {
			return err
		}
	}
	result, at, err := b.Run(ctx, *o, r)
	switch {
	case err != nil && at.Stage != "" && ctx.Err() != nil:
		return fmt.Errorf("%w in stage %s: continue with %s", train.ErrInterrupted, at.Stage, repeated(cmd, at.Dir))
	case err != nil:
		return err
	case !at.Reported:
		_, err = fmt.Fprintf(s.out, "%s: stage %s of %d cases is done; then: posttrain %s --out %s\n", at.Dir,
			at.Stage, at.Cases, b.Command, fault.ShellWord(at.Dir))
		return err
	}
	fmt.Fprint(s.out, result)
	fmt.Fprint(s.out, at.Figures)
	if at.Dir != "" {
		fmt.Fprintf(s.out, "Summary: %s\n", filepath.Join(at.Dir, bench.SummaryName))
	}
	if failed, ok := any(result).(interface{ Err() error }); ok {
		return failed.Err()
	}
	return nil
}

// loadBenchmark reads the config from a file, or the run folder's own, and the command line. The stages report and judge
// want a run to continue.
func loadBenchmark[O any, R fmt.Stringer](b *bench.Benchmark[O, R], f *configFlags, cmd *cobra.Command) (*O, error) {
	sets, err := f.overrides(cmd)
	if err != nil {
		return nil, err
	}
	path, continues := f.config, bench.Continues(f.out)
	later := func(o config.Override) bool {
		return o.Key == "stage" && (o.Value == bench.StageJudge || o.Value == bench.StageReport)
	}
	switch {
	case path == "" && continues:
		path = filepath.Join(f.out, "config.yaml")
	case !continues && slices.ContainsFunc(sets, later):
		return nil, usageError{fmt.Errorf("--out %q: there is no run in it (no config.yaml): want the folder of a run, "+
			"such as runs/%s-20260102-150405", f.out, strings.TrimPrefix(f.folder(), "eval-"))}
	}
	if b.HasKey("run") && isRun(path) {
		sets, path = append(sets, config.Override{Flag: "--config", Key: "run", Value: path}), ""
	}
	in, err := f.input(path, sets)
	if err != nil {
		return nil, err
	}
	o, err := b.Load(in)
	if err == nil {
		b.Options(o).Dir = f.out
	}
	return o, err
}

// repeated is the same command line with the run folder.
func repeated(cmd *cobra.Command, dir string) string {
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
				words = append(words, "--"+flag.Name, fault.ShellWord(value))
			}
		}
	})
	return strings.Join(append(words, "--out", fault.ShellWord(dir)), " ")
}

func newEvalCompare(s streams) *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use: "compare A B [C...]", Short: "Compare reported runs of a benchmark over the same cases, case by case",
		Long: "Compare reported runs of a benchmark over the same cases with the first of them, case by case: in every\n" +
			"measure the difference of the means with a 95 % paired bootstrap interval, and in how many cases which run\n" +
			"is higher. Of a measure that holds or not, such as a leak, the exact McNemar test of the cases in one run only.",
		Example: "  posttrain eval compare runs/base runs/ci-rl --out comparison.json",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usageError{fmt.Errorf("compare wants two run folders or more, found %d", len(args))}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("out") && filepath.Ext(out) != ".json" {
				return usageError{fmt.Errorf("--out %q: want a name that ends in .json", out)}
			}
			c, err := bench.Compare(args...)
			if err == nil && out != "" {
				err = data.WriteJSON(out, c)
			}
			if err != nil {
				return err
			}
			return c.Write(s.out)
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "file to write the comparison to, .json")
	return cmd
}
