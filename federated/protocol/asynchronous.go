package protocol

import "github.com/posttrain/posttrain/federated"

// asynchronous is the server of a method without rounds: every update that it accepts makes a new version, and the
// agent that sent it gets the newest parameters. Its exported fields are a snapshot.
type asynchronous struct {
	core
	Guard *federated.Guard
	Rule  rule
}

func newAsynchronous(c core, start []float64) *asynchronous {
	guard := &federated.Guard{Length: c.d, Clip: c.o.Clip, MaxDelay: c.o.DelayLimit()}
	return &asynchronous{c, guard, newRule(c.o, start)}
}

func (s *asynchronous) Params() []float64 { return s.Rule.theta() }

// Join greets an agent. One that comes back without an update between gets the newest parameters.
func (s *asynchronous) Join(agent int) (_ Receipt, sends []Send) {
	if !s.isMember(agent) {
		return Receipt{}, nil
	}
	s.Members[agent].Joined = true
	if s.Done() {
		return Receipt{}, []Send{s.send(agent, Task{Kind: Stop})}
	}
	return Receipt{}, []Send{s.taskFor(agent)}
}

func (s *asynchronous) taskFor(agent int) Send {
	return s.send(agent, Task{Kind: Gradient, Params: s.o.roundToWire(s.Rule.agentParams())})
}

func (s *asynchronous) Receive(u Update) (Receipt, []Send) {
	if refusal, ok := s.checkArrival(&u, Gradient, 1, 0); !ok {
		return refusal, s.retry(u.Agent, refusal.Reason, u.Version)
	}
	verdict := s.Guard.Check(u.Agent, u.Version, s.Now, u.Vectors[0], u.Stats.Flat)
	if verdict.Reason != "" {
		return s.refuse(verdict.Reason, verdict.Detail), s.retry(u.Agent, verdict.Reason, u.Version)
	}
	s.Guard.Record(u.Agent, u.Version, s.Now, verdict.Norm)
	s.accept(&u)
	s.Now++
	values := s.Rule.step(verdict.Used, u.Version)
	values["norm"] = verdict.Norm
	if verdict.Bound > 0 {
		values["bound"] = verdict.Bound
	}
	r := Receipt{Accepted: true, Bound: verdict.Shortened(), Stepped: true, Metrics: s.stepMetrics(values)}
	return r, s.nextTasks(u.Agent)
}

// nextTasks are the tasks after an update that counts: for its agent, and for those that wait for new parameters.
func (s *asynchronous) nextTasks(agent int) (sends []Send) {
	if s.Done() {
		return s.stop()
	}
	for i, m := range s.Members {
		if i == agent || m.Idle && !m.Left {
			sends = append(sends, s.taskFor(i))
		}
	}
	return sends
}

// retry are the tasks after a refused update. An agent whose work at the newest parameters was refused would send the
// same once more: it waits for the next version.
func (s *asynchronous) retry(agent int, reason string, version int) []Send {
	switch {
	case !s.isMember(agent) || reason == federated.ReasonDuplicate || reason == ReasonEnded:
		return nil
	case version == s.Now:
		s.Members[agent].Idle = true
		return nil
	}
	return []Send{s.taskFor(agent)}
}

// Deadline does nothing: no update waits for another agent.
func (s *asynchronous) Deadline() (Receipt, []Send) { return Receipt{}, nil }

func (s *asynchronous) Leave(agent int) (Receipt, []Send) {
	if s.isMember(agent) {
		s.Members[agent].Left = true
	}
	return Receipt{}, nil
}

func (s *asynchronous) State() (State, error)     { return Pack(s) }
func (s *asynchronous) Restore(state State) error { return s.restore(state, s) }
