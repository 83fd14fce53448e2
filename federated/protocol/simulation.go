package protocol

import (
	"context"
	"fmt"
	"math"
	"runtime"
)

// Simulation runs the server and all agents of a method in one process on a virtual clock: an agent's gradient takes a
// time that is given, whatever it costs this machine. Agents compute in parallel, and the results are the same for any
// number of processors. It is not safe for concurrent use.
//
// The pipeline of [Simulation.Step]: the earliest event happens, ties by the lower agent number; its update goes to the
// server; the tasks that the server answers with begin at the same moment. A task that comes while its agent still
// works on another replaces that. Samples cost time; solving, searching and products on samples that are there cost
// none.
type Simulation struct {
	Server   Server
	Agents   []*Agent
	Times    []float64 // seconds that each agent needs for a gradient
	Deadline float64   // seconds after which a round closes without those who are late; 0: it waits for all

	now    float64
	opened float64 // when the round began, or its deadline was last tried
	jobs   []*job  // by agent, nil: it has no task
	slots  chan struct{}
}

// Event is what happened: an update of an agent came, or the deadline of a round.
type Event struct {
	Agent   int     // -1: the deadline
	Time    float64 // seconds
	Task    Task
	Receipt Receipt
}

// job is a task that an agent works on.
type job struct {
	Task   Task
	Due    float64
	done   chan struct{}
	update Update
	err    error
}

// NewSimulation makes a simulation at time 0, which begins with [Simulation.JoinAll].
func NewSimulation(server Server, agents []*Agent, times []float64) (*Simulation, error) {
	if len(agents) == 0 || len(times) != len(agents) {
		return nil, fmt.Errorf("%d agents and %d times: want at least one agent, and a time for each", len(agents),
			len(times))
	}
	for i, t := range times {
		if !(t > 0) || math.IsInf(t, 0) {
			return nil, fmt.Errorf("the time of agent %d is %v: want a number above 0", i, t)
		}
	}
	s := &Simulation{Server: server, Agents: agents, Times: times, jobs: make([]*job, len(agents))}
	s.slots = make(chan struct{}, runtime.GOMAXPROCS(0))
	return s, nil
}

// JoinAll has all agents join, in order.
func (s *Simulation) JoinAll(ctx context.Context) {
	for i := range s.Agents {
		_, sends := s.Server.Join(i)
		s.start(ctx, sends)
	}
}

// Now is the time of the last event, in seconds.
func (s *Simulation) Now() float64 { return s.now }

// Step lets the next event happen.
func (s *Simulation) Step(ctx context.Context) (Event, error) {
	if err := ctx.Err(); err != nil {
		return Event{}, err
	}
	e, err := s.next()
	if err != nil {
		return e, err
	}
	var sends []Send
	if s.now = max(s.now, e.Time); e.Agent < 0 {
		s.opened = s.now
		e.Receipt, sends = s.Server.Deadline()
	} else {
		j := s.jobs[e.Agent]
		s.jobs[e.Agent] = nil
		if <-j.done; j.err != nil {
			return e, fmt.Errorf("agent %d: %w", e.Agent, j.err)
		}
		e.Task = j.Task
		e.Receipt, sends = s.Server.Receive(j.update)
	}
	if e.Receipt.Stepped {
		s.opened = s.now
	}
	s.start(ctx, sends)
	return e, nil
}

// next chooses the earliest event. An update that is due at a deadline is in time.
func (s *Simulation) next() (Event, error) {
	e := Event{Agent: -1, Time: math.Inf(1)}
	for i, j := range s.jobs {
		if j != nil && j.Due < e.Time {
			e.Agent, e.Time = i, j.Due
		}
	}
	switch {
	case e.Agent < 0:
		return e, ErrStuck
	case s.Deadline > 0 && s.opened+s.Deadline < e.Time:
		return Event{Agent: -1, Time: s.opened + s.Deadline}, nil
	}
	return e, nil
}

// start begins tasks. An agent does one at a time: a new one waits for the computation, though not for the virtual
// time, of one that it replaces.
func (s *Simulation) start(ctx context.Context, sends []Send) {
	for _, send := range sends {
		if send.Task.Kind == Stop {
			continue
		}
		j := &job{Task: send.Task, Due: s.now, done: make(chan struct{})}
		if send.Task.Samples() {
			j.Due += s.Times[send.Agent]
		}
		s.begin(ctx, send.Agent, j)
	}
}

func (s *Simulation) begin(ctx context.Context, agent int, j *job) {
	replaced := s.jobs[agent]
	s.jobs[agent] = j
	go func() {
		defer close(j.done)
		if replaced != nil {
			<-replaced.done
		}
		s.slots <- struct{}{}
		defer func() { <-s.slots }()
		j.update, j.err = s.Agents[agent].Do(ctx, j.Task)
	}()
}

// Wait returns when no agent computes. Call it before the simulation is given up.
func (s *Simulation) Wait() {
	for _, j := range s.jobs {
		if j != nil {
			<-j.done
		}
	}
}

// simulationState is a snapshot of a simulation.
type simulationState struct {
	Now, Opened float64
	Server      State
	Agents      []State
	Jobs        []*job // by agent
}

// State is a snapshot of the server, the agents and the clock. Take it after a step: an agent samples again what it had
// sampled within an open round, but the inner steps that it had done are lost.
func (s *Simulation) State() (State, error) {
	s.Wait()
	server, err := s.Server.State()
	if err != nil {
		return server, err
	}
	m := simulationState{Now: s.now, Opened: s.opened, Server: server, Jobs: s.jobs}
	for i, a := range s.Agents {
		state, err := a.State()
		if err != nil {
			return state, fmt.Errorf("agent %d: %w", i, err)
		}
		m.Agents = append(m.Agents, state)
	}
	return Pack(&m)
}

// Restore takes a snapshot back and begins the tasks that were under way.
func (s *Simulation) Restore(ctx context.Context, state State) error {
	var m simulationState
	if err := Unpack(state, &m); err != nil {
		return fmt.Errorf("a simulation: %w", err)
	}
	if len(m.Agents) != len(s.Agents) || len(m.Jobs) != len(s.Agents) {
		return fmt.Errorf("snapshot of a simulation: %d agents, want %d", len(m.Agents), len(s.Agents))
	}
	if err := s.Server.Restore(m.Server); err != nil {
		return err
	}
	s.now, s.opened = m.Now, m.Opened
	for i, a := range s.Agents {
		if err := a.Restore(m.Agents[i]); err != nil {
			return err
		}
		if j := m.Jobs[i]; j != nil {
			j.done = make(chan struct{})
			s.begin(ctx, i, j)
		}
	}
	return nil
}
