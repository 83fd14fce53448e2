package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"

	"github.com/posttrain/posttrain/eval"
	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/recipe/evalci"
	recipe "github.com/posttrain/posttrain/recipe/federated"
)

// The arms of E4 that are no method.
const (
	before   = "before"  // the model that all start from
	central  = "central" // one agent with all items, which is posttrain ci-rl
	alone    = "alone"   // each agent on its own items; the measures are means over the agents
	adaptive = "-adamw"  // end of an arm's name whose server steps by AdamW, and not by AFedPG's own step
)

// training is a run of E4.
type training struct {
	Arm   string
	Split string
	Ratio float64 // of the slowest agent's time to the fastest's
	Seed  uint64
}

// trained is a model after a run, or several of equal standing: those of agents that learn alone.
type trained struct {
	training
	cost
	Budget  int         // completions of the run
	Rewards [][]float64 // of each model's answers to the test items
	Kept    []float64   // shares of the answers that keep the format, with integrity, with utility, with both
	Wall    float64     // seconds
}

func (m trained) key() training { return m.training }
func (m trained) length() int   { return m.Budget }

func (m trained) String() string {
	return fmt.Sprintf("%s %s ratio=%g seed=%d: reward %.3f, %.0f s", m.Arm, m.Split, m.Ratio, m.Seed,
		mean(slices.Concat(m.Rewards...)), m.Wall)
}

// comparison is E4.
type comparison struct {
	Agents  int
	Budget  int // completions of a run
	Items   int // test items
	Seeds   int
	Arms    []string
	Runs    string
	Setting []string // further settings of every run
	Table   bool     // the table of the runs that are there, and no run
}

// mainArms run with every seed, and with items that differ between the agents.
var mainArms = []string{central, protocol.FedAvg, protocol.FedPG, protocol.AFedPG, protocol.FedNPGADMM}

// otherArms run with one seed.
var otherArms = []string{before, alone, protocol.Vanilla,
	protocol.FedPG + adaptive, protocol.AFedPG + adaptive}

// compareCIRL is the command e4.
func compareCIRL(ctx context.Context, args []string) error {
	c := comparison{}
	flags := flag.NewFlagSet("e4", flag.ExitOnError)
	flags.IntVar(&c.Agents, "agents", 8, "agents")
	flags.IntVar(&c.Budget, "completions", 7680, "completions of a run")
	flags.IntVar(&c.Items, "items", 400, "test items")
	flags.IntVar(&c.Seeds, "seeds", 3, "seeds of the main arms")
	arms := flags.String("arms", strings.Join(slices.Concat(otherArms, mainArms), ","), "arms")
	set := flags.String("set", "", "further settings, key=value,…")
	flags.StringVar(&c.Runs, "runs", "e4.jsonl", "file of the runs that have ended")
	flags.BoolVar(&c.Table, "table", false, "run nothing, and print the table of the runs that have ended")
	flags.Parse(args)
	c.Arms, c.Setting = strings.Split(*arms, ","), strings.FieldsFunc(*set, func(r rune) bool { return r == ',' })
	return c.measure(ctx, os.Stdout, os.Stderr)
}

func (c comparison) measure(ctx context.Context, out, progress io.Writer) error {
	done, err := open[training, trained](c.Runs, c.Budget)
	if err != nil {
		return err
	}
	defer done.file.Close()
	trainings := c.trainings()
	if c.Table {
		trainings = nil
	}
	// One at a time: a run uses all processors.
	if err := runAll(ctx, progress, 1, trainings, done, c.do); err != nil {
		return err
	}
	c.print(out, done)
	return nil
}

// trainings are the runs, the first seed of every arm first; items that differ and several speeds come last.
func (c comparison) trainings() (all []training) {
	var varied []training
	for seed := range max(c.Seeds, 1) {
		for _, r := range c.rows() {
			r.Seed = uint64(seed)
			switch plain := r.Split == "equal" && r.Ratio == 1; {
			case plain && (seed == 0 || slices.Contains(mainArms, r.Arm)):
				all = append(all, r)
			case !plain && seed == 0:
				varied = append(varied, r)
			}
		}
	}
	return append(all, varied...)
}

// rows are those of the table: every arm, the main ones with items that differ, the asynchronous ones at four speeds.
func (c comparison) rows() (all []training) {
	for _, arm := range c.Arms {
		all = append(all, training{arm, "equal", 1, 0})
	}
	for _, arm := range c.Arms {
		if slices.Contains(mainArms, arm) && arm != central {
			all = append(all, training{arm, "dirichlet", 1, 0})
		}
	}
	for _, arm := range c.Arms {
		if protocol.Asynchronous(arm) || arm == protocol.FedPG {
			all = append(all, training{arm, "equal", 4, 0})
		}
	}
	return all
}

// settings are the configuration of a run.
func (c comparison) settings(r training) []string {
	method, rule := stepOf(r.Arm)
	agents, prompts := c.Agents, 4
	switch r.Arm {
	case central:
		method, agents, prompts = protocol.FedPG, 1, 16
	case alone, before:
		method = protocol.FedPG
	}
	updates := c.Budget / (8 * prompts)
	steps := fmt.Sprintf("updates=%d", updates)
	if !protocol.Asynchronous(method) {
		steps = fmt.Sprintf("rounds=%d", updates/agents)
	}
	set := []string{"workload=ci-rl", "method=" + method, fmt.Sprintf("agents=%d", agents), steps,
		fmt.Sprintf("seed=%d", r.Seed), fmt.Sprintf("ci_rl.grpo.prompts_per_step=%d", prompts),
		"ci_rl.split=" + r.Split}
	set = append(set, rule...)
	if r.Arm == central {
		set = append(set, "lr=2e-4", "adamw.warmup_steps=5") // posttrain ci-rl's
	}
	return append(set, c.Setting...)
}

// stepOf gives an arm's method, and settings for the step of its server: that of AFedPG's paper, where AdamW is the
// default for language models.
func stepOf(arm string) (method string, rule []string) {
	method, isAdaptive := strings.CutSuffix(arm, adaptive)
	if !isAdaptive && slices.Contains([]string{protocol.AFedPG, protocol.Vanilla, protocol.FedPG}, method) {
		rule = []string{"rule=" + protocol.Normalized}
	}
	return method, rule
}

func (c comparison) options(r training) (*recipe.Options, error) {
	return settled(c.settings(r)...)
}

// settled are the options of a simulation with some keys set.
func settled(settings ...string) (*recipe.Options, error) {
	var overrides []config.Override
	for _, text := range settings {
		o, err := config.ParseSet(text)
		if err != nil {
			return nil, err
		}
		overrides = append(overrides, o)
	}
	simulation, err := recipe.Spec.Load(config.Input{Overrides: overrides})
	if err != nil {
		return nil, err
	}
	return &simulation.Options, nil
}

// do makes a run and measures what was learnt.
func (c comparison) do(ctx context.Context, r training) (out trained, err error) {
	out, begun := trained{training: r, Budget: c.Budget, Kept: make([]float64, 4)}, time.Now()
	o, err := c.options(r)
	if err != nil {
		return out, err
	}
	defer o.Close()
	switch r.Arm {
	case before:
		var server protocol.Server
		if server, _, err = o.NewServer(); err == nil {
			err = c.evaluate(ctx, &out, o, server.Params())
		}
	case alone:
		for i := 0; i < c.Agents && err == nil; i++ {
			err = c.train(ctx, &out, o, i)
		}
	default:
		err = c.train(ctx, &out, o, -1)
	}
	floats.Scale(1/float64(max(1, len(out.Rewards))), out.Kept)
	out.Wall = math.Round(time.Since(begun).Seconds())
	return out, err
}

// train trains a model by all agents, or by one of them alone, and measures it.
func (c comparison) train(ctx context.Context, out *trained, o *recipe.Options, only int) error {
	class, theta, err := learn(ctx, o, only, out.Ratio, &out.cost)
	if err != nil {
		return err
	}
	return c.evaluate(ctx, out, class, theta)
}

// evaluate measures parameters on the test items, which no agent has.
func (c comparison) evaluate(ctx context.Context, out *trained, o *recipe.Options, theta []float64) error {
	dir, err := os.MkdirTemp("", "bench-federated-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := o.WriteModel(filepath.Join(dir, "model"), theta); err != nil {
		return err
	}
	e := evalci.Defaults()
	e.Model, e.N, e.Temperature = filepath.Join(dir, "model"), c.Items, 0.7
	e.Backend, e.MaxNew = o.CIRL.Backend, o.CIRL.Sampling.MaxNew
	result, err := evalci.Run(ctx, e, nil)
	if err != nil {
		return err
	}
	var rewards []float64
	for _, a := range result.Samples {
		rewards = append(rewards, math.Round(1e4*a.Score.Reward)/1e4)
	}
	all := result.Report.All
	for i, rate := range []eval.Rate{all.Format, all.Integrity, all.Utility, all.Complete} {
		out.Kept[i] += rate.Share().Value()
	}
	out.Rewards = append(out.Rewards, rewards)
	return nil
}

// print writes the table as Markdown.
func (c comparison) print(out io.Writer, done *log[training, trained]) {
	fmt.Fprintf(out, "%d agents, %d completions in a run, %d test items. Reward: mean, 95%% bootstrap interval over "+
		"items and seeds.\n\n| arm | items | times | seeds | reward | format | integrity | utility | complete | "+
		"MB up, down an agent | virtual time |\n|%s\n", c.Agents, c.Budget, c.Items, strings.Repeat("---|", 11))
	for _, row := range c.rows() {
		runs := c.of(row, done)
		if len(runs) == 0 {
			continue
		}
		low, high := interval95(runs)
		fmt.Fprintf(out, "| %s | %s | 1–%g | %d | %.3f (%.3f–%.3f) |", row.Arm, row.Split, row.Ratio, len(runs),
			over(runs, trained.reward), low, high)
		for k := range runs[0].Kept {
			fmt.Fprintf(out, " %.1f |", 100*over(runs, func(m trained) float64 { return m.Kept[k] }))
		}
		fmt.Fprintf(out, " %.1f, %.1f | %.0f |\n", over(runs, func(m trained) float64 { return m.Up })/1e6,
			over(runs, func(m trained) float64 { return m.Down })/1e6,
			over(runs, func(m trained) float64 { return m.Time }))
	}
	c.conclude(out, done)
}

func over(runs []trained, value func(trained) float64) float64 {
	var all []float64
	for _, m := range runs {
		all = append(all, value(m))
	}
	return mean(all)
}

func (m trained) reward() float64 { return mean(slices.Concat(m.Rewards...)) }

// of are the runs of a row, by seed.
func (c comparison) of(row training, done *log[training, trained]) (all []trained) {
	for seed := range c.Seeds {
		row.Seed = uint64(seed)
		if m, ok := done.results[row]; ok {
			all = append(all, m)
		}
	}
	return all
}

// interval95 is the bootstrap's interval of the mean reward: models are drawn, and of each its items.
func interval95(runs []trained) (low, high float64) {
	var models [][]float64
	for _, m := range runs {
		models = append(models, m.Rewards...)
	}
	r, means := rand.New(rand.NewPCG(1, 0)), make([]float64, 2000)
	for k := range means {
		for range models {
			rewards := models[r.IntN(len(models))]
			sum := 0.0
			for range rewards {
				sum += rewards[r.IntN(len(rewards))]
			}
			means[k] += sum / float64(len(rewards)*len(models))
		}
	}
	slices.Sort(means)
	return stat.Quantile(0.025, stat.Empirical, means, nil), stat.Quantile(0.975, stat.Empirical, means, nil)
}

// conclude says what the specification demands, of the runs that are there.
func (c comparison) conclude(out io.Writer, done *log[training, trained]) {
	apart := c.of(training{alone, "equal", 1, 0}, done)
	fmt.Fprintln(out)
	for _, arm := range []string{protocol.AFedPG, protocol.FedPG} {
		together := c.of(training{arm, "equal", 1, 0}, done)
		if len(apart) == 0 || len(together) == 0 {
			continue
		}
		_, high := interval95(apart)
		low, _ := interval95(together)
		fmt.Fprintf(out, "- %s is above the agents alone, intervals apart: %v.\n", arm, low > high)
	}
	slow := c.of(training{protocol.FedPG, "equal", 4, 0}, done)
	quick := c.of(training{protocol.AFedPG, "equal", 4, 0}, done)
	if len(slow) > 0 && len(quick) > 0 {
		fmt.Fprintf(out, "- At four speeds FedPG's virtual time over AFedPG's, for as many completions: %.2f.\n",
			slow[0].Time/quick[0].Time)
	}
}
