// Package virtual runs the server and all agents of a method in one process on a virtual clock: an agent's gradient
// takes a time that is given, whatever it costs this machine. Agents compute in parallel, and the results are the same
// for any number of processors.
//
// The pipeline of [Simulation.Step]: the earliest event happens, ties by the lower agent number; its update goes to the
// server; the tasks that the server answers with begin at the same moment. A task that comes while its agent still
// works on another replaces that. Samples cost time; solving, searching and products on samples that are there cost
// none.
package virtual

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"strings"

	"github.com/posttrain/posttrain/federated/protocol"
)

// Simulation is a run on a virtual clock. It is not safe for concurrent use.
type Simulation struct {
	Server   protocol.Server
	Agents   []*protocol.Agent
	Times    []float64 // seconds that each agent needs for a gradient
	Deadline float64   // seconds after which a round closes without those who are late; 0: it waits for all
	Order    []Entry   // what happens, in the place of the clock; nil: by the clock

	now    float64
	opened float64 // when the round began, or its deadline was last tried
	jobs   []*job  // by agent, nil: it has no task
	rooms  chan struct{}
}

// Entry is an event of a recorded order.
type Entry struct {
	What  What
	Agent int
}

// What happens.
type What string

// The events.
const (
	Join     What = "join"
	Arrive   What = "update"
	Leave    What = "leave"
	Deadline What = "deadline"
)

// Event is what happened.
type Event struct {
	Entry
	Time    float64 // seconds
	Task    protocol.Task
	Receipt protocol.Receipt // of an update or a deadline
}

// job is a task that an agent works on.
type job struct {
	task   protocol.Task
	due    float64
	done   chan struct{}
	update protocol.Update
	err    error
}

// New makes a simulation at time 0. All agents join, in order, unless an order says when they do.
func New(server protocol.Server, agents []*protocol.Agent, times []float64) (*Simulation, error) {
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
	s.rooms = make(chan struct{}, runtime.GOMAXPROCS(0))
	return s, nil
}

// JoinAll has all agents join, in order.
func (s *Simulation) JoinAll(ctx context.Context) {
	for i := range s.Agents {
		s.start(ctx, s.Server.Join(i))
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
	var sends []protocol.Send
	switch s.now = max(s.now, e.Time); e.What {
	case Join:
		sends = s.Server.Join(e.Agent)
		e.Receipt = s.Server.Closed()
	case Leave:
		sends = s.Server.Leave(e.Agent)
		e.Receipt = s.Server.Closed()
	case Deadline:
		s.opened = s.now
		e.Receipt, sends = s.Server.Deadline()
	default:
		j := s.jobs[e.Agent]
		s.jobs[e.Agent] = nil
		if <-j.done; j.err != nil {
			return e, fmt.Errorf("agent %d: %w", e.Agent, j.err)
		}
		e.Task = j.task
		e.Receipt, sends = s.Server.Receive(j.update)
	}
	if e.Receipt.Stepped {
		s.opened = s.now
	}
	s.start(ctx, sends)
	return e, nil
}

// next chooses the next event: of the order, or the earliest. An update that is due at a deadline is in time.
func (s *Simulation) next() (Event, error) {
	if s.Order != nil {
		return s.recorded()
	}
	e := Event{Entry: Entry{Arrive, -1}, Time: math.Inf(1)}
	for i, j := range s.jobs {
		if j != nil && j.due < e.Time {
			e.Agent, e.Time = i, j.due
		}
	}
	if s.Deadline > 0 && s.opened+s.Deadline < e.Time && e.Agent >= 0 {
		return Event{Entry: Entry{Deadline, 0}, Time: s.opened + s.Deadline}, nil
	}
	if e.Agent < 0 {
		return e, protocol.ErrStuck
	}
	return e, nil
}

// recorded takes the next event of the order.
func (s *Simulation) recorded() (Event, error) {
	if len(s.Order) == 0 {
		return Event{}, fmt.Errorf("the recorded order ends: %w", protocol.ErrStuck)
	}
	e := Event{Entry: s.Order[0], Time: s.now}
	if e.Agent < 0 || e.Agent >= len(s.Agents) {
		return e, fmt.Errorf("the recorded order has agent %d: want 0 to %d", e.Agent, len(s.Agents)-1)
	}
	s.Order = s.Order[1:]
	if e.What == Arrive {
		if s.jobs[e.Agent] == nil {
			return e, fmt.Errorf("the recorded order has an update of agent %d, which has no task", e.Agent)
		}
		e.Time = s.jobs[e.Agent].due
	}
	return e, nil
}

// start begins tasks. An agent does one at a time: a new one waits for the computation, though not for the virtual
// time, of one that it replaces.
func (s *Simulation) start(ctx context.Context, sends []protocol.Send) {
	for _, send := range sends {
		if send.Task.Kind == protocol.Stop {
			continue
		}
		j := &job{task: send.Task, due: s.now + s.cost(send), done: make(chan struct{})}
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
		s.rooms <- struct{}{}
		defer func() { <-s.rooms }()
		j.update, j.err = s.Agents[agent].Do(ctx, j.task)
	}()
}

func (s *Simulation) cost(send protocol.Send) float64 {
	if send.Task.Samples() {
		return s.Times[send.Agent]
	}
	return 0
}

// Wait returns when no agent computes. Call it before the simulation is given up.
func (s *Simulation) Wait() {
	for _, j := range s.jobs {
		if j != nil {
			<-j.done
		}
	}
}

// head is the head of a snapshot.
type head struct {
	Now, Opened float64
	Server      json.RawMessage
	Agents      []json.RawMessage
	Jobs        []*jobHead // by agent
}

type jobHead struct {
	Task protocol.Task
	Due  float64
}

// State is a snapshot of the server, the agents and the clock. Take it after a step: an agent samples again what it had
// sampled within an open round, but the inner steps that it had done are lost.
func (s *Simulation) State() (protocol.State, error) {
	s.Wait()
	h, vectors := head{Now: s.now, Opened: s.opened}, map[string][]float64{}
	put := func(prefix string, state protocol.State) json.RawMessage {
		for name, v := range state.Vectors {
			vectors[prefix+name] = v
		}
		return state.Head
	}
	server, err := s.Server.State()
	if err != nil {
		return server, err
	}
	h.Server = put("server/", server)
	for i, a := range s.Agents {
		state, err := a.State()
		if err != nil {
			return state, fmt.Errorf("agent %d: %w", i, err)
		}
		h.Agents = append(h.Agents, put(fmt.Sprintf("agent/%d/", i), state))
		h.Jobs = append(h.Jobs, s.jobs[i].save(vectors, i))
	}
	text, err := json.Marshal(h)
	return protocol.State{Head: text, Vectors: vectors}, err
}

func (j *job) save(vectors map[string][]float64, agent int) *jobHead {
	if j == nil {
		return nil
	}
	for name, v := range map[string][]float64{"params": j.task.Params, "direction": j.task.Direction} {
		if v != nil {
			vectors["task/"+strconv.Itoa(agent)+"/"+name] = v
		}
	}
	return &jobHead{j.task, j.due}
}

// Restore takes a snapshot back and begins the tasks that were under way.
func (s *Simulation) Restore(ctx context.Context, state protocol.State) error {
	var h head
	if err := json.Unmarshal(state.Head, &h); err != nil {
		return fmt.Errorf("snapshot of a simulation: %w", err)
	}
	if len(h.Agents) != len(s.Agents) || len(h.Jobs) != len(s.Agents) {
		return fmt.Errorf("snapshot of a simulation: %d agents, want %d", len(h.Agents), len(s.Agents))
	}
	if err := s.Server.Restore(protocol.State{Head: h.Server, Vectors: below(state.Vectors, "server/")}); err != nil {
		return err
	}
	s.now, s.opened = h.Now, h.Opened
	for i, a := range s.Agents {
		prefix := fmt.Sprintf("agent/%d/", i)
		if err := a.Restore(protocol.State{Head: h.Agents[i], Vectors: below(state.Vectors, prefix)}); err != nil {
			return err
		}
		if j := h.Jobs[i]; j != nil {
			at := "task/" + strconv.Itoa(i) + "/"
			j.Task.Params, j.Task.Direction = state.Vectors[at+"params"], state.Vectors[at+"direction"]
			s.begin(ctx, i, &job{task: j.Task, due: j.Due, done: make(chan struct{})})
		}
	}
	return nil
}

// below are the vectors whose names begin with prefix, without it.
func below(vectors map[string][]float64, prefix string) map[string][]float64 {
	out := map[string][]float64{}
	for name, v := range vectors {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			out[rest] = v
		}
	}
	return out
}
