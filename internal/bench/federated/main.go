// Command federated measures the federated methods:
//
//	go run ./bench/federated e3      asynchronous and synchronous ones on cartpole, scripts/federated/e3.sh
//	go run ./bench/federated e3 --task swimmer    the same on Swimmer
//	go run ./bench/federated e1      FedNPG-ADMM on Swimmer or Hopper, scripts/federated/e1.sh (swimmer.go)
//	go run ./bench/federated e2      the same with a part of the agents in each round, scripts/federated/e2.sh
//	go run ./bench/federated e4      CI-RL of a language model, scripts/federated/e4.sh (cirl.go)
//	go run ./bench/federated e5      bytes over time, scripts/federated/e5.sh (traffic.go)
//	go run ./bench/federated speedup    virtual time of synchronous runs over asynchronous ones (speedup.go)
//	go run ./bench/federated mappo   preference pairs that stay with their owners, scripts/federated/mappo.sh (pairs.go)
//	go run ./bench/federated overhead    what a round costs beside training (overhead.go)
//	go run ./bench/federated steps   steps a second of MuJoCo's tasks beside Gymnasium's (steps.go)
//
// What follows is about e3.
//
// Glossary: an iteration is as many gradients as there are agents, one for each agent on average; a run is one method
// with a number of agents, a rate and a seed, on the virtual clock, where agent i needs ratio^(i/(N-1)) for a gradient.
//
// The pipeline:
//  1. the grid: every method and number of agents runs with every rate, on seeds that the tables do not use; the rate
//     with the highest mean return over all iterations is its best;
//  2. the seeds of the tables run at the best rates;
//  3. AFedPG with the most agents. Cartpole: all equally fast, with one that sends -1000·g, with and without the
//     guard's bound. Swimmer: with the published rate, as the length of a step;
//  4. tables with 95% intervals (Student's t over seeds), and what they show.
//
// Every run that has ended is a line of the file --runs; what is there is not run again.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"runtime"

	"github.com/posttrain/posttrain/federated"
	"github.com/posttrain/posttrain/federated/protocol"
	recipe "github.com/posttrain/posttrain/recipe/federated"
)

// plan is what is measured.
type plan struct {
	Task       string
	Methods    []string
	Agents     []int
	Rates      []float64
	Iterations int
	Seeds      int // of the tables, from 0
	GridSeeds  int // of the grid, from gridSeed
	Ratio      float64
	Curves     string // picture of the returns with the most agents
	steps      int    // of a batch; 0: the task's
}

const gridSeed = 1000

// experiments are the commands; e3 runs without one.
var experiments = map[string]func(ctx context.Context, args []string) error{
	"e1": func(ctx context.Context, args []string) error { return swimming(ctx, args, sizes) },
	"e2": func(ctx context.Context, args []string) error { return swimming(ctx, args, selection) },
	"e3": asynchronous, "e4": compareCIRL, "e5": communication, "steps": compareSteps, "speedup": compareSpeeds,
	"overhead": compareOverhead, "mappo": comparePairs,
}

func main() {
	name, args := "e3", os.Args[1:]
	if len(args) > 0 && experiments[args[0]] != nil {
		name, args = args[0], args[1:]
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := experiments[name](ctx, args); err != nil {
		fmt.Fprintln(os.Stderr, "federated: "+err.Error())
		os.Exit(1)
	}
}

// plans are E3's tasks. Swimmer takes far longer. One agent is plain policy gradient.
var plans = map[string]plan{
	"cartpole": {Agents: []int{1, 2, 4, 8}, Rates: []float64{2.5e-4, 5e-4, 1e-3, 2e-3, 4e-3, 8e-3}, Iterations: 100,
		Seeds: 5, GridSeeds: 2},
	"swimmer": {Agents: []int{1, 8}, Rates: []float64{5e-4, 1e-3, 2e-3}, Iterations: 60, Seeds: 5, GridSeeds: 1},
}

// asynchronous is E3.
func asynchronous(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("e3", flag.ExitOnError)
	task := flags.String("task", "cartpole", "cartpole or swimmer")
	path := flags.String("runs", "",
		`file of the runs that have ended (default "e3.jsonl", of swimmer "e3-swimmer.jsonl")`)
	curves := flags.String("curves", "", "picture of the returns with the most agents")
	flags.Parse(args)
	p, ok := plans[*task]
	if !ok {
		return fmt.Errorf("--task %s: want cartpole or swimmer", *task)
	}
	if *path == "" && *task == "swimmer" {
		*path = "e3-swimmer.jsonl"
	}
	p.Task, p.Curves, p.Ratio = *task, *curves, 4
	p.Methods = []string{protocol.AFedPG, protocol.Vanilla, protocol.FedPG, protocol.A3C}
	return measure(ctx, os.Stdout, os.Stderr, p, cmp.Or(*path, "e3.jsonl"))
}

func measure(ctx context.Context, out, progress io.Writer, p plan, path string) error {
	done, err := open[run, result](path, p.Iterations)
	if err != nil {
		return err
	}
	defer done.file.Close()
	all := runtime.GOMAXPROCS(0)
	if err := runAll(ctx, progress, all, p.grid(), done, p.do); err != nil {
		return err
	}
	best := p.best(done)
	if err := runAll(ctx, progress, all, append(p.final(best), p.varied(best)...), done, p.do); err != nil {
		return err
	}
	r := newReport(p, done, best)
	r.print(out)
	if p.Curves == "" {
		return nil
	}
	return r.draw()
}

// cell is a row and a column of the tables.
type cell struct {
	Method string
	Agents int
}

// run is what is measured once.
type run struct {
	cell
	Rate    float64
	Seed    uint64
	Variant string `json:",omitempty"`
}

// The variants of a run. Those on cartpole have agents that are equally fast.
const (
	equal     = "equal times"
	malicious = "one of them sends -1000·g"
	unguarded = malicious + ", clip: 0"
	letter    = "rate: published"
)

// The paper's rate and α on Swimmer.
const publishedRate, publishedAlpha = 3e-4, 1e-3

func (p plan) variants() []string {
	if p.Task == "swimmer" {
		return []string{letter}
	}
	return []string{equal, malicious, unguarded}
}

// varied are the variants' runs: AFedPG with the most agents.
func (p plan) varied(best map[cell]float64) (all []run) {
	c := cell{protocol.AFedPG, p.Agents[len(p.Agents)-1]}
	for _, variant := range p.variants() {
		rate := best[c]
		if variant == letter {
			rate = publishedRate
		}
		for s := range p.Seeds {
			all = append(all, run{c, rate, uint64(s), variant})
		}
	}
	return all
}

// result is a run that has ended.
type result struct {
	run
	Iterations int
	Time       float64   // virtual seconds
	Returns    []float64 // of each iteration: the mean return of its episodes under the policies that sampled them
}

func (r result) key() run    { return r.run }
func (r result) length() int { return r.Iterations }

func (r result) String() string {
	return fmt.Sprintf("%s N=%d lr=%g seed=%d %s: %.0f, at the end %.0f", r.Method, r.Agents, r.Rate, r.Seed, r.Variant,
		mean(r.Returns), last(r.Returns))
}

func (p plan) cells() (all []cell) {
	for _, m := range p.Methods {
		for _, n := range p.Agents {
			all = append(all, cell{m, n})
		}
	}
	return all
}

func (p plan) grid() (all []run) {
	for _, c := range p.cells() {
		for _, rate := range p.Rates {
			for s := range p.GridSeeds {
				all = append(all, run{c, rate, gridSeed + uint64(s), ""})
			}
		}
	}
	return all
}

func (p plan) final(best map[cell]float64) (all []run) {
	for _, c := range p.cells() {
		for s := range p.Seeds {
			all = append(all, run{c, best[c], uint64(s), ""})
		}
	}
	return all
}

// best are the rates with the highest mean return over the iterations and seeds of the grid.
func (p plan) best(done *log[run, result]) map[cell]float64 {
	best, highest := map[cell]float64{}, map[cell]float64{}
	for _, r := range p.grid() {
		sum := 0.0
		for s := range p.GridSeeds {
			r.Seed = gridSeed + uint64(s)
			sum += mean(done.results[r].Returns)
		}
		if most, seen := highest[r.cell]; !seen || sum > most {
			best[r.cell], highest[r.cell] = r.Rate, sum
		}
	}
	return best
}

// do runs on the virtual clock.
func (p plan) do(ctx context.Context, r run) (result, error) {
	out := result{run: r, Iterations: p.Iterations}
	o := p.options(r)
	s, err := p.simulation(r, &o)
	if err != nil {
		return out, err
	}
	s.JoinAll(ctx)
	defer s.Wait()
	total, n := 0.0, 0
	for !s.Server.Done() {
		e, err := s.Step(ctx)
		if errors.Is(err, protocol.ErrStuck) {
			return out.collapsed(), nil
		}
		if err != nil {
			return out, err
		}
		if !e.Receipt.Stepped {
			continue
		}
		total, n = total+e.Receipt.Metrics["return"], n+1
		if !protocol.Asynchronous(r.Method) || n == r.Agents {
			out.Returns = append(out.Returns, total/float64(n))
			total, n = 0, 0
		}
	}
	out.Time = s.Now()
	return out, nil
}

// options are a run's.
func (p plan) options(r run) recipe.Options {
	o := recipe.Defaults(r.Method)
	o.Agents, o.Seed, o.LR = r.Agents, r.Seed, &r.Rate
	if o.Rounds != nil {
		o.Rounds = &p.Iterations
	} else {
		o.Updates = new(p.Iterations * r.Agents)
	}
	switch r.Variant {
	case unguarded:
		o.Clip = 0
	case letter:
		o.Rate, o.Alpha = new("published"), new(publishedAlpha)
	}
	if p.Task != "cartpole" {
		takeTask(&o, p.Task)
	}
	if p.steps > 0 {
		o.Control.Steps = p.steps
	}
	return o
}

// collapsed is a run whose policy has become certain of every action: all gradients are 0, and the server refuses them.
// The policy stays as it is for the iterations that are left.
func (r result) collapsed() result {
	for end := r.Returns[len(r.Returns)-1]; len(r.Returns) < r.Iterations; {
		r.Returns = append(r.Returns, end)
	}
	return r
}

func (p plan) simulation(r run, o *recipe.Options) (*protocol.Simulation, error) {
	ratio := p.Ratio
	if r.Variant != "" && r.Variant != letter {
		ratio = 1
	}
	times, err := federated.Geometric.Times(o.Agents, ratio)
	if err != nil {
		return nil, err
	}
	server, _, err := o.NewServer()
	if err != nil {
		return nil, err
	}
	agents := make([]*protocol.Agent, o.Agents)
	for i := range agents {
		w, err := o.NewWorkload(i)
		if err != nil {
			return nil, err
		}
		if i == 0 && (r.Variant == malicious || r.Variant == unguarded) {
			w = liar{w}
		}
		if agents[i], err = protocol.NewAgent(i, w, o.Options); err != nil {
			return nil, err
		}
	}
	return protocol.NewSimulation(server, agents, times)
}

// liar is a workload whose gradient is -1000·g.
type liar struct{ protocol.Workload }

func (l liar) Collect(ctx context.Context, params []float64, version int) (protocol.Batch, error) {
	b, err := l.Workload.Collect(ctx, params, version)
	return lie{b}, err
}

type lie struct{ protocol.Batch }

func (l lie) Gradient() ([]float64, error) {
	g, err := l.Batch.Gradient()
	return federated.Scaled(-1000, g), err
}

func mean(x []float64) (m float64) {
	for _, v := range x {
		m += v / float64(len(x))
	}
	return m
}

// finalIterations are those whose mean is a run's final return.
const finalIterations = 10

func last(returns []float64) float64 { return mean(returns[max(0, len(returns)-finalIterations):]) }

// interval is a mean with its 95% interval over seeds.
type interval struct{ mean, half float64 }

// student has the 0.975 quantiles of Student's t by degrees of freedom, from 1.
var student = []float64{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262}

func intervalOf(x []float64) interval {
	m, squares, n := mean(x), 0.0, len(x)
	for _, v := range x {
		squares += (v - m) * (v - m)
	}
	if n < 2 {
		return interval{m, math.Inf(1)}
	}
	t := student[min(n-1, len(student))-1]
	return interval{m, t * math.Sqrt(squares/float64(n-1)/float64(n))}
}

func (a interval) overlaps(b interval) bool { return math.Abs(a.mean-b.mean) <= a.half+b.half }
