// Command federated makes the tables of docs/federated.md from runs of posttrain federated simulate:
//
//	go run ./internal/bench/federated TABLE [--runs DIR] [--seeds N] [--set KEY=VALUE]…
//
// TABLE is a name in tables.go. An arm of a table is a simulation with some keys set, and runs once for each seed in
// the folder DIR/TABLE/ARM-SEED. What has ended there is not run again, what was interrupted continues. Then it prints
// a row for each arm, with 95% intervals (Student's t over seeds).
//
// Glossary: an iteration is as many gradients as there are agents, one for each agent on average: a round, or as many
// updates as there are agents; the final return is the mean over the last 10 iterations.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"

	evalci "github.com/posttrain/posttrain/eval/ci"
	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/recipe/federated"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := execute(ctx, os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "federated: "+err.Error())
		os.Exit(1)
	}
}

func execute(ctx context.Context, out io.Writer, args []string) error {
	names := slices.Sorted(maps.Keys(tables))
	if len(args) == 0 || tables[args[0]] == nil {
		return fmt.Errorf("%q: want a table: %s", args, fault.Or(names))
	}
	var sets []string
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	dir := flags.String("runs", "runs", "folder of the runs")
	seeds := flags.Int("seeds", 5, "seeds of each arm, from 0")
	flags.Func("set", "a key of all runs, such as control.steps=512", func(text string) error {
		sets = append(sets, text)
		return nil
	})
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	fmt.Fprintf(out, "| arm | final return | test reward | kB up, down an agent | virtual time | rounds without a step "+
		"|\n|%s\n", strings.Repeat("---|", 6))
	for _, a := range tables[args[0]]() {
		var all []ended
		for seed := range *seeds {
			e, err := a.run(ctx, filepath.Join(*dir, args[0]), seed, sets)
			if err != nil {
				return fmt.Errorf("%s, seed %d: %w", a.name, seed, err)
			}
			all = append(all, e)
		}
		fmt.Fprint(out, row(a.name, all))
	}
	return nil
}

// arm is a row of a table.
type arm struct {
	name string
	sets []string // keys of the simulation
}

// ended is what a run has reached and cost.
type ended struct {
	Return   float64 // final
	Reward   float64 // of a language model's answers to items that nobody trained on; NaN without
	Up, Down float64 // bytes of an agent, mean
	Time     float64 // virtual seconds
	Refused  float64 // rounds without a step
}

// run makes the run of a seed, unless it has ended before.
func (a arm) run(ctx context.Context, dir string, seed int, more []string) (e ended, err error) {
	var overrides []config.Override
	for _, text := range slices.Concat(a.sets, more, []string{fmt.Sprint("seed=", seed), "compare=none"}) {
		o, err := config.ParseSet(text)
		if err != nil {
			return e, err
		}
		overrides = append(overrides, o)
	}
	s, err := federated.Spec.Load(config.Input{Overrides: overrides})
	if err != nil {
		return e, err
	}
	path := filepath.Join(dir, fmt.Sprintf("%s-%d", a.name, seed))
	if !exists(path, "summary.json") {
		if s.Dir = (recipe.RunDir{Out: path}); exists(path, "config.yaml") {
			s.Dir = recipe.RunDir{Resume: path}
		}
		_, err := federated.Run(ctx, *s, nil)
		// A policy that is certain of every action has no gradient left: its run ends early, and keeps its return.
		if err != nil && !errors.Is(err, protocol.ErrStuck) {
			return e, err
		}
	}
	if e, err = measure(path, s); err == nil && s.Workload == federated.CIRLName {
		e.Reward, err = reward(ctx, path, s)
	}
	return e, err
}

func exists(elem ...string) bool {
	_, err := os.Stat(filepath.Join(elem...))
	return err == nil
}

const finalIterations = 10

// measure reads a run's metrics.
func measure(path string, s *federated.Simulation) (e ended, err error) {
	records, err := run.ReadMetrics(filepath.Join(path, "metrics.jsonl"))
	if err != nil || len(records) == 0 {
		return e, errors.Join(err, errors.New("no step"))
	}
	window := finalIterations
	if protocol.Asynchronous(s.Method) {
		window *= s.Agents
	}
	var returns []float64
	for _, r := range records[max(0, len(records)-window):] {
		if x, ok := r.Values["return"]; ok { // an episode ended in it
			returns = append(returns, x)
		}
	}
	last, n := records[len(records)-1].Values, float64(s.Agents)
	e = ended{Return: mean(returns), Reward: math.NaN(), Time: last["time"], Refused: last["refused/step"]}
	for i := range s.Agents {
		e.Up += last[fmt.Sprintf("bytes_up/%d", i)] / n
		e.Down += last[fmt.Sprintf("bytes_down/%d", i)] / n
	}
	return e, nil
}

// reward is the mean over 400 items that nobody trained on.
func reward(ctx context.Context, path string, s *federated.Simulation) (float64, error) {
	e := evalci.Defaults()
	e.Agent.Model, e.N, e.Agent.Temperature = filepath.Join(path, run.ModelName), 400, 0.7
	e.Agent.Backend, e.Agent.MaxNew, e.Dir = s.CIRL.Backend, s.CIRL.Sampling.MaxNew, filepath.Join(path, "eval-ci")
	result, _, err := evalci.Benchmark.Run(ctx, e, nil)
	if err != nil {
		return 0, err
	}
	var rewards []float64
	for _, a := range result.Answers {
		rewards = append(rewards, a.Score.Reward)
	}
	return mean(rewards), nil
}

// row is an arm's line of the table.
func row(name string, all []ended) string {
	of := func(form string, value func(ended) float64) string {
		var x []float64
		for _, e := range all {
			x = append(x, value(e))
		}
		return interval(form, x)
	}
	kilobytes := func(value func(ended) float64) string {
		return of("%.1f", func(e ended) float64 { return value(e) / 1e3 })
	}
	return fmt.Sprintf("| %s | %s | %s | %s, %s | %s | %s |\n", name,
		of("%.1f", func(e ended) float64 { return e.Return }), of("%.3f", func(e ended) float64 { return e.Reward }),
		kilobytes(func(e ended) float64 { return e.Up }), kilobytes(func(e ended) float64 { return e.Down }),
		of("%.1f", func(e ended) float64 { return e.Time }), of("%.1f", func(e ended) float64 { return e.Refused }))
}

// student has the 0.975 quantiles of Student's t by degrees of freedom, from 1.
var student = []float64{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262}

// interval is a mean with its 95% interval over seeds. Equal values, and single ones, have none.
func interval(form string, x []float64) string {
	m, squares, n := mean(x), 0.0, len(x)
	if math.IsNaN(m) {
		return ""
	}
	for _, v := range x {
		squares += (v - m) * (v - m)
	}
	text := fmt.Sprintf(form, m)
	if n > 1 && squares > 0 {
		half := student[min(n-1, len(student))-1] * math.Sqrt(squares/float64(n-1)/float64(n))
		text += fmt.Sprintf(" ± "+form, half)
	}
	return text
}

func mean(x []float64) (m float64) {
	for _, v := range x {
		m += v / float64(len(x))
	}
	return m
}
