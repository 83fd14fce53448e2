package main

import (
	"context"
	"fmt"

	"github.com/posttrain/posttrain/federated"
	"github.com/posttrain/posttrain/federated/protocol"
	recipe "github.com/posttrain/posttrain/recipe/federated"
)

// cost is what a run of a language model took.
type cost struct {
	Up, Down float64 // bytes of an agent, mean
	Time     float64 // virtual seconds
}

// count keeps the mean bytes of an agent so far.
func (c *cost) count(metrics map[string]float64, agents int) {
	if metrics == nil {
		return
	}
	c.Up, c.Down = 0, 0
	for i := range agents {
		c.Up += metrics[fmt.Sprintf("bytes_up/%d", i)] / float64(agents)
		c.Down += metrics[fmt.Sprintf("bytes_down/%d", i)] / float64(agents)
	}
}

// learn trains by all agents of a run, or by one of them alone unless only is negative; ratio is that of the slowest
// agent's time to the fastest's. It returns the parameters at the end, and the options with the model that was opened.
func learn(ctx context.Context, o *recipe.Options, only int, ratio float64, c *cost) (*recipe.Options, []float64,
	error) {
	class := *o
	var workloads []protocol.Workload
	for i := range o.Agents {
		if only >= 0 && i != only {
			continue
		}
		w, err := o.NewWorkload(i)
		if err != nil {
			return nil, nil, err
		}
		class = *o // with the model that the first workload has opened
		class.Agents, workloads = len(workloads)+1, append(workloads, w)
	}
	sim, err := simulation(&class, workloads, ratio)
	if err != nil {
		return nil, nil, err
	}
	defer sim.Wait()
	for sim.JoinAll(ctx); !sim.Server.Done(); {
		e, err := sim.Step(ctx)
		if err != nil {
			return nil, nil, err
		}
		c.count(e.Receipt.Metrics, class.Agents)
	}
	c.Time = sim.Now()
	return &class, sim.Server.Params(), nil
}

func simulation(o *recipe.Options, workloads []protocol.Workload, ratio float64) (*protocol.Simulation, error) {
	server, _, err := o.NewServer()
	if err != nil {
		return nil, err
	}
	agents := make([]*protocol.Agent, len(workloads))
	for i, w := range workloads {
		if agents[i], err = protocol.NewAgent(i, w, o.Options); err != nil {
			return nil, err
		}
	}
	times, err := federated.Geometric.Times(len(agents), ratio)
	if err != nil {
		return nil, err
	}
	return protocol.NewSimulation(server, agents, times)
}
