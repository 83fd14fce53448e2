package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/posttrain/posttrain/federated/protocol"
	recipe "github.com/posttrain/posttrain/recipe/federated"
)

// pairing is the comparison of federated MaPPO: owners of preference pairs, who may not share them.
type pairing struct {
	Agents  int
	Budget  int // pairs of a run, those of all passes
	Seeds   int
	Arms    []string
	Runs    string
	Setting []string // further settings of every run
	judge   judge
}

// judge measures models on the pairs that all arms hold out.
type judge struct {
	seed uint64
	of   protocol.Workload // nil: not made yet
	o    *recipe.Options
}

// pairArms are its rows.
var pairArms = []string{before, alone, central, protocol.FedAvg, protocol.AFedPG,
	protocol.AFedPG + adaptive}

// Pairs of an agent's batch: of a gradient, and of a local training, which makes steps of a gradient's pairs.
const (
	gradientPairs = 8
	localPairs    = 32
)

// pairRun is a run of the comparison.
type pairRun struct {
	Arm  string
	Seed uint64
}

// paired is a model after a run, or the mean of those of agents that learn alone.
type paired struct {
	pairRun
	cost
	Budget int
	Count  int                // pairs that all arms hold out
	Means  map[string]float64 // over them
	Wall   float64            // seconds
}

func (m paired) key() pairRun { return m.pairRun }
func (m paired) length() int  { return m.Budget }

func (m paired) String() string {
	return fmt.Sprintf("%s seed=%d: accuracy %.3f, %.0f s", m.Arm, m.Seed, m.Means["accuracy"], m.Wall)
}

// comparePairs is the command mappo.
func comparePairs(ctx context.Context, args []string) error {
	p := pairing{}
	flags := flag.NewFlagSet("mappo", flag.ExitOnError)
	flags.IntVar(&p.Agents, "agents", 8, "owners")
	flags.IntVar(&p.Budget, "pairs", 512, "pairs of a run, a multiple of 32 for each owner")
	flags.IntVar(&p.Seeds, "seeds", 1, "seeds")
	arms := flags.String("arms", strings.Join(pairArms, ","), "arms")
	set := flags.String("set", "", "further settings, key=value,…")
	flags.StringVar(&p.Runs, "runs", "mappo.jsonl", "file of the runs that have ended")
	flags.Parse(args)
	if p.Agents < 1 {
		return fmt.Errorf("--agents %d: want 1 or more", p.Agents)
	}
	if p.Budget < localPairs*p.Agents || p.Budget%(localPairs*p.Agents) != 0 {
		return fmt.Errorf("--pairs %d: want a multiple of %d, %d for each owner", p.Budget, localPairs*p.Agents,
			localPairs)
	}
	p.Arms, p.Setting = strings.Split(*arms, ","), strings.FieldsFunc(*set, func(r rune) bool { return r == ',' })
	return p.measure(ctx, os.Stdout, os.Stderr)
}

func (p *pairing) measure(ctx context.Context, out, progress io.Writer) error {
	done, err := open[pairRun, paired](p.Runs, p.Budget)
	if err != nil {
		return err
	}
	defer done.file.Close()
	defer p.judge.close()
	var all []pairRun
	for seed := range max(p.Seeds, 1) {
		for _, arm := range p.Arms {
			all = append(all, pairRun{arm, uint64(seed)})
		}
	}
	// One at a time: a run uses all processors.
	if err := runAll(ctx, progress, 1, all, done, p.do); err != nil {
		return err
	}
	p.print(out, done)
	return nil
}

// settings are the configuration of a run. Every arm sees the same number of pairs.
func (p *pairing) settings(r pairRun) []string {
	method, rule := stepOf(r.Arm)
	agents, pairs := p.Agents, gradientPairs
	switch r.Arm {
	case central:
		method, agents = protocol.AFedPG, 1
	case alone, before:
		method = protocol.AFedPG
	case protocol.FedAvg:
		pairs = localPairs
	}
	length := fmt.Sprintf("updates=%d", p.Budget/pairs)
	if !protocol.Asynchronous(method) {
		length = fmt.Sprintf("rounds=%d", p.Budget/pairs/agents)
	} else if r.Arm == alone {
		length = fmt.Sprintf("updates=%d", p.Budget/pairs/agents)
	}
	set := []string{"workload=mappo", "method=" + method, fmt.Sprintf("agents=%d", agents), length,
		fmt.Sprintf("seed=%d", r.Seed), fmt.Sprintf("mappo.train.batch_size=%d", pairs), "mappo.validation.every=0"}
	return slices.Concat(set, rule, p.Setting)
}

// do makes a run and measures what was learnt.
func (p *pairing) do(ctx context.Context, r pairRun) (out paired, err error) {
	out, begun := paired{pairRun: r, Budget: p.Budget, Means: map[string]float64{}}, time.Now()
	o, err := settled(p.settings(r)...)
	if err != nil {
		return out, err
	}
	defer o.Close()
	agents := []int{-1}
	if r.Arm == alone {
		agents = nil
		for i := range o.Agents {
			agents = append(agents, i)
		}
	}
	for _, only := range agents {
		var theta []float64 // nil: the start
		if r.Arm != before {
			if _, theta, err = learn(ctx, o, only, 1, &out.cost); err != nil {
				return out, err
			}
		}
		if err := p.evaluate(ctx, &out, theta, 1/float64(len(agents))); err != nil {
			return out, err
		}
	}
	out.Wall = math.Round(time.Since(begun).Seconds())
	return out, nil
}

// evaluate adds the means over the pairs that all arms hold out, times a weight.
func (p *pairing) evaluate(ctx context.Context, out *paired, theta []float64, weight float64) error {
	if err := p.appoint(out.Seed); err != nil {
		return err
	}
	if theta == nil {
		theta = p.judge.of.Start()
	}
	validator, ok := p.judge.of.(protocol.Validator)
	if !ok {
		return errors.New("the workload has no validation")
	}
	v, err := validator.Validate(ctx, theta)
	if err != nil {
		return err
	}
	if v == nil {
		return errors.New("nothing is held out: want mappo.data.eval_fraction above 0")
	}
	out.Count = v.Count
	for name, value := range v.Means {
		out.Means[name] += weight * value
	}
	return nil
}

// appoint makes the judge of a seed. It stays for all runs of the seed: the reference's log-probs are measured once.
func (p *pairing) appoint(seed uint64) error {
	if p.judge.of != nil && p.judge.seed == seed {
		return nil
	}
	p.judge.close()
	o, err := settled(p.settings(pairRun{central, seed})...) // its only agent has all that is held out
	if err != nil {
		return err
	}
	of, err := o.NewWorkload(0)
	if err != nil {
		o.Close()
		return err
	}
	p.judge = judge{seed, of, o}
	return nil
}

func (j *judge) close() {
	if j.o != nil {
		j.o.Close()
	}
	*j = judge{}
}

// print writes the table as Markdown.
func (p *pairing) print(out io.Writer, done *log[pairRun, paired]) {
	fmt.Fprintf(out, "%d owners, %d pairs in a run, %d seeds.\n\n| arm | loss | accuracy | margin | log p(chosen) | "+
		"log p(rejected) | MB up, down an owner |\n|%s\n", p.Agents, p.Budget, max(p.Seeds, 1),
		strings.Repeat("---|", 7))
	for _, arm := range p.Arms {
		of := func(name string) float64 { return p.over(arm, done, func(m paired) float64 { return m.Means[name] }) }
		n := p.over(arm, done, func(m paired) float64 { return float64(m.Count) })
		accuracy := of("accuracy")
		fmt.Fprintf(out, "| %s | %.4f | %.1f ± %.1f | %.3f | %.2f | %.2f | %.1f, %.1f |\n", arm, of("loss"),
			100*accuracy, 196*math.Sqrt(accuracy*(1-accuracy)/n), of("margin"), of("logp_chosen"), of("logp_rejected"),
			p.over(arm, done, func(m paired) float64 { return m.Up })/1e6,
			p.over(arm, done, func(m paired) float64 { return m.Down })/1e6)
	}
	fmt.Fprintf(out, "\nAccuracy in per cent of the %.0f pairs held out, with 95%% of one seed's sampling error.\n",
		p.over(p.Arms[0], done, func(m paired) float64 { return float64(m.Count) }))
}

// over is the mean over an arm's seeds.
func (p *pairing) over(arm string, done *log[pairRun, paired], value func(paired) float64) (m float64) {
	var all []float64
	for seed := range max(p.Seeds, 1) {
		all = append(all, value(done.results[pairRun{arm, uint64(seed)}]))
	}
	return mean(all)
}
