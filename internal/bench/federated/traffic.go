package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/posttrain/posttrain/federated"
	"github.com/posttrain/posttrain/federated/protocol"
	picture "github.com/posttrain/posttrain/internal/run"
	recipe "github.com/posttrain/posttrain/recipe/federated"
)

// crossing are the bytes of a vector between the server and an agent.
type crossing struct {
	time  float64
	agent int
	bytes float64
}

// traffic is E5: bytes over time of AFedPG and FedPG, for as many gradients.
type traffic struct {
	Agents, Rounds, Size int
	Ratio                float64
	Pattern              federated.Pattern // how the agents' times are spread
	Curves               string
}

func communication(ctx context.Context, args []string) error {
	t := traffic{Pattern: federated.Geometric}
	flags := flag.NewFlagSet("e5", flag.ExitOnError)
	flags.IntVar(&t.Agents, "agents", 8, "number of agents")
	flags.IntVar(&t.Rounds, "rounds", 50, "gradients of an agent, on average")
	flags.IntVar(&t.Size, "parameters", 4868, "parameters; those of the papers' Swimmer")
	flags.Float64Var(&t.Ratio, "ratio", 4, "time of the slowest agent for a gradient, over that of the fastest")
	flags.StringVar(&t.Curves, "curves", "", "picture of the bytes over time")
	flags.Parse(args)
	return t.measure(ctx, os.Stdout)
}

// trafficMethods are those that E5 compares.
var trafficMethods = []string{protocol.FedPG, protocol.AFedPG}

func (t traffic) measure(ctx context.Context, out io.Writer) error {
	all := map[string][]crossing{}
	for _, m := range trafficMethods {
		c, err := t.cross(ctx, m)
		if err != nil {
			return fmt.Errorf("%s: %w", m, err)
		}
		all[m] = c
	}
	t.print(out, all)
	if t.Curves == "" {
		return nil
	}
	return t.draw(all)
}

// cross runs a method. Traffic depends on the number of parameters alone, so the workload is a quadratic function.
func (t traffic) cross(ctx context.Context, method string) ([]crossing, error) {
	o := recipe.Defaults(method)
	o.Workload, o.Quadratic.Size, o.Agents = recipe.Quadratic, t.Size, t.Agents
	if o.Rounds != nil {
		o.Rounds = &t.Rounds
	} else {
		o.Updates = new(t.Rounds * t.Agents)
		o.MaxDelay = new(t.Rounds * t.Agents) // nothing is too old
	}
	times, err := t.Pattern.Times(t.Agents, t.Ratio)
	if err != nil {
		return nil, err
	}
	server, _, err := o.NewServer()
	if err != nil {
		return nil, err
	}
	agents := make([]*protocol.Agent, t.Agents)
	for i := range agents {
		if agents[i], err = o.NewAgent(i); err != nil {
			return nil, err
		}
	}
	sim, err := protocol.NewSimulation(server, agents, times)
	if err != nil {
		return nil, err
	}
	return t.follow(ctx, sim, o)
}

// follow notes what crosses: an update up at its arrival; parameters down at the start, then to the agent that has sent
// an update, in rounds to all agents when a round ends. The sums must be those that the server counts.
func (t traffic) follow(ctx context.Context, sim *protocol.Simulation, o recipe.Options) (all []crossing, err error) {
	vector := float64(t.Size * o.Width())
	sim.JoinAll(ctx)
	defer sim.Wait()
	for i := range t.Agents {
		all = append(all, crossing{0, i, vector})
	}
	var metrics map[string]float64
	for !sim.Server.Done() {
		e, err := sim.Step(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, crossing{e.Time, e.Agent, vector})
		if e.Receipt.Stepped {
			metrics = e.Receipt.Metrics
		}
		if sim.Server.Done() || !e.Receipt.Stepped {
			continue
		}
		for i := range t.Agents {
			if i == e.Agent || !protocol.Asynchronous(o.Method) {
				all = append(all, crossing{e.Time, i, vector})
			}
		}
	}
	return all, check(all, metrics, t.Agents)
}

// check compares the bytes with the server's counts.
func check(all []crossing, metrics map[string]float64, agents int) error {
	sums := make([]float64, agents)
	for _, c := range all {
		sums[c.agent] += c.bytes
	}
	for i, s := range sums {
		if want := metrics[fmt.Sprintf("bytes_up/%d", i)] + metrics[fmt.Sprintf("bytes_down/%d", i)]; s != want {
			return fmt.Errorf("agent %d: %v bytes, and the server counts %v", i, s, want)
		}
	}
	return nil
}

// windows are the bytes in each window of a length, of one agent, or of all: -1. A last window that the run does not
// fill is left out.
func windows(all []crossing, length float64, agent int) []float64 {
	sums := make([]float64, int(all[len(all)-1].time/length+1e-9)+1)
	for _, c := range all {
		if agent < 0 || c.agent == agent {
			sums[int(c.time/length+1e-9)] += c.bytes
		}
	}
	return sums[:max(1, len(sums)-1)]
}

// fine windows are this part of a round.
const parts = 16

func (t traffic) print(out io.Writer, all map[string][]crossing) {
	fmt.Fprintf(out, "Bytes of the server in a window, %d agents, %d parameters as float32, %d gradients an agent. A "+
		"round of fedpg takes %g.\n\n| | seconds | bytes in all | peak, window of a round | mean | peak, a %dth of "+
		"it | mean |\n|---|---|---|---|---|---|---|\n", t.Agents, t.Size, t.Rounds, t.Ratio, parts)
	peaks := map[string][2]float64{}
	for _, m := range trafficMethods {
		c, total := all[m], 0.0
		for _, x := range c {
			total += x.bytes
		}
		round, part := windows(c, t.Ratio, -1), windows(c, t.Ratio/parts, -1)
		peaks[m] = [2]float64{slices.Max(round), slices.Max(part)}
		fmt.Fprintf(out, "| %s | %.1f | %.0f | %.0f | %.0f | %.0f | %.0f |\n", m, c[len(c)-1].time, total,
			peaks[m][0], mean(round), peaks[m][1], mean(part))
	}
	a, f := peaks[protocol.AFedPG], peaks[protocol.FedPG]
	fmt.Fprintf(out, "\n- AFedPG's peak is below FedPG's in windows of a round: %v (%.2f of it).\n", a[0] < f[0],
		a[0]/f[0])
	fmt.Fprintf(out, "- In windows of a %dth of a round: %v (%.2f of it).\n", parts, a[1] < f[1], a[1]/f[1])
}

// draw has panels for the server in both windows, and for the fastest and the slowest agent.
func (t traffic) draw(all map[string][]crossing) error {
	panel := func(label string, length float64, agent int) picture.Panel {
		p := picture.Panel{Label: label, X: "virtual time, seconds"}
		for _, m := range trafficMethods {
			l := picture.Line{Name: m}
			for k, b := range windows(all[m], length, agent) {
				l.X, l.Y = append(l.X, float64(k)*length), append(l.Y, b/1000)
			}
			p.Lines = append(p.Lines, l)
		}
		return p
	}
	return picture.Curves(t.Curves, "kB in a window", []picture.Panel{
		panel("server, a round", t.Ratio, -1), panel(fmt.Sprintf("server, 1/%d of it", parts), t.Ratio/parts, -1),
		panel("fastest agent, a round", t.Ratio, 0), panel("slowest agent, a round", t.Ratio, t.Agents-1)})
}
