package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/posttrain/posttrain/federated/protocol"
	recipe "github.com/posttrain/posttrain/recipe/federated"
)

// overhead measures what a round costs beside training: server, agents' protocol and virtual clock in one process.
type overhead struct {
	Agents []int
	Rounds int
	size   int // parameters; 0: those of the embedded model
}

func compareOverhead(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("overhead", flag.ExitOnError)
	rounds := flags.Int("rounds", 5, "rounds of a measurement")
	flags.Parse(args)
	return overhead{Agents: []int{16, 64, 256}, Rounds: max(1, *rounds)}.measure(ctx, os.Stdout)
}

func (v overhead) measure(ctx context.Context, out io.Writer) error {
	training, err := v.training(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "An agent's batch and gradient of ci-rl, %d parameters: %.3f s.\n\n"+
		"| agents | seconds of a round of fedpg without training | of an agent | over training |\n|---|---|---|---|\n",
		v.size, training)
	for _, n := range v.Agents {
		round, err := v.round(ctx, n)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "| %d | %.3f | %.4f | %.2f%% |\n", n, round, round/float64(n), 100*round/float64(n)/training)
	}
	return nil
}

// training is the time in seconds of one agent's batch and gradient, the mean of some after the first, which compiles.
func (v *overhead) training(ctx context.Context) (float64, error) {
	o, err := settled("workload=ci-rl", "agents=8", "method=fedpg")
	if err != nil {
		return 0, err
	}
	w, err := o.NewWorkload(0)
	if err != nil {
		return 0, err
	}
	defer o.Close()
	theta := w.Start()
	v.size = len(theta)
	var begun time.Time
	for version := range v.Rounds + 1 {
		if version == 1 {
			begun = time.Now()
		}
		b, err := w.Collect(ctx, theta, version)
		if err == nil {
			_, err = b.Gradient()
		}
		if err != nil {
			return 0, err
		}
	}
	return time.Since(begun).Seconds() / float64(v.Rounds), nil
}

// round is the time of a round whose agents have next to no work: a gradient of a quadratic function with a diagonal
// matrix. The first round does not count.
func (v overhead) round(ctx context.Context, agents int) (float64, error) {
	o := recipe.Defaults(protocol.FedPG)
	o.Workload, o.Agents, o.Rounds = recipe.Quadratic, agents, new(v.Rounds+1)
	o.Quadratic.Size = v.size
	server, _, err := o.NewServer()
	if err != nil {
		return 0, err
	}
	all := make([]*protocol.Agent, agents)
	for i := range all {
		if all[i], err = o.NewAgent(i); err != nil {
			return 0, err
		}
	}
	sim, err := protocol.NewSimulation(server, all, slices.Repeat([]float64{1}, agents))
	if err != nil {
		return 0, err
	}
	defer sim.Wait()
	var begun time.Time
	for sim.JoinAll(ctx); !sim.Server.Done(); {
		e, err := sim.Step(ctx)
		if err != nil {
			return 0, err
		}
		if e.Receipt.Stepped && begun.IsZero() {
			begun = time.Now()
		}
	}
	return time.Since(begun).Seconds() / float64(v.Rounds), nil
}
