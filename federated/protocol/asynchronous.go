package protocol

import (
	"strconv"

	"github.com/posttrain/posttrain/federated"
)

// asynchronous is the server of a method without rounds: every update that it accepts makes a new version, and the
// agent that sent it gets the newest parameters. With a buffer of B, versions count updates and every B-th is a step.
type asynchronous struct {
	core
	guard  *federated.Guard
	rule   rule
	kind   Kind
	buffer []buffered
}

// buffered is an accepted update that waits for its step.
type buffered struct {
	Version int
	vector  []float64
}

// rule is what an asynchronous method does with the updates of a step. Versions count steps here.
type rule interface {
	theta() []float64
	// sent is what agents work at.
	sent() []float64
	// step applies vectors made at versions, and returns its metrics.
	step(vectors [][]float64, versions []int) map[string]float64
	// save returns the vectors of a snapshot, and load takes them back; steps is the number of steps so far.
	save() map[string][]float64
	load(steps int, vectors map[string][]float64) error
}

func newAsynchronous(c core, start []float64) *asynchronous {
	s := &asynchronous{core: c, kind: Gradient}
	s.guard = &federated.Guard{Length: c.d, Clip: c.o.Clip, MaxDelay: c.o.Oldest()}
	switch c.o.Method {
	case A3C:
		s.rule = &a3c{federated.NewA3C(start, *c.o.LR)}
	case FedBuff:
		s.kind, s.rule = Train, &buff{federated.NewFedBuff(start, *c.o.Buffer, *c.o.Outer.LR)}
	default:
		s.rule = newRule(c.o, start)
	}
	return s
}

func (s *asynchronous) Params() []float64 { return s.rule.theta() }

// size is the number of updates of a step.
func (s *asynchronous) size() int {
	if s.o.Buffer == nil {
		return 1
	}
	return *s.o.Buffer
}

// Join greets an agent. One that comes back without an update between gets the newest parameters.
func (s *asynchronous) Join(agent int) []Send {
	if !s.known(agent) {
		return nil
	}
	s.Members[agent].Joined = true
	if s.Done() {
		return []Send{s.send(agent, Task{Kind: Stop})}
	}
	return []Send{s.work(agent)}
}

func (s *asynchronous) work(agent int) Send {
	return s.send(agent, Task{Kind: s.kind, Params: s.o.round(s.rule.sent())})
}

func (s *asynchronous) Receive(u Update) (Receipt, []Send) {
	if refusal, ok := s.arrive(&u, s.kind, 1, 0); !ok {
		return refusal, s.again(u.Agent, refusal.Reason, u.Version)
	}
	verdict := s.guard.Check(u.Agent, u.Version, s.Now, u.Vectors[0], u.Stats.Flat)
	if verdict.Reason != "" {
		return s.refuse(verdict.Reason, verdict.Detail), s.again(u.Agent, verdict.Reason, u.Version)
	}
	s.guard.Record(u.Agent, u.Version, s.Now, verdict.Norm)
	s.accept(&u)
	s.buffer = append(s.buffer, buffered{u.Version, verdict.Used})
	receipt := Receipt{Accepted: true}
	if verdict.Norm > verdict.Bound && verdict.Bound > 0 {
		receipt.Bound = verdict.Bound
	}
	if s.Now++; len(s.buffer) == s.size() {
		receipt.Stepped, receipt.Metrics = true, s.step(verdict)
	}
	return receipt, s.next(u.Agent)
}

// step applies the buffer and returns the metrics; last is what the guard said of the last update.
func (s *asynchronous) step(last federated.Verdict) map[string]float64 {
	var vectors [][]float64
	var versions []int
	for _, b := range s.buffer {
		vectors, versions = append(vectors, b.vector), append(versions, b.Version/s.size())
	}
	s.buffer = nil
	values := s.rule.step(vectors, versions)
	values["norm"] = last.Norm
	if last.Bound > 0 {
		values["bound"] = last.Bound
	}
	return s.measure(values)
}

// next are the tasks after an update that counts: for its agent, and for those that wait for new parameters.
func (s *asynchronous) next(agent int) (sends []Send) {
	if s.Done() {
		return s.stop()
	}
	for i, m := range s.Members {
		if i == agent || m.Idle && !m.Left {
			sends = append(sends, s.work(i))
		}
	}
	return sends
}

// again are the tasks after a refused update. An agent whose work at the newest parameters was refused would send the
// same once more: it waits for the next version.
func (s *asynchronous) again(agent int, reason string, version int) []Send {
	switch {
	case !s.known(agent) || reason == federated.ReasonDuplicate || reason == ReasonEnded:
		return nil
	case version == s.Now:
		s.Members[agent].Idle = true
		return nil
	}
	return []Send{s.work(agent)}
}

// Deadline does nothing: no update waits for another agent.
func (s *asynchronous) Deadline() (Receipt, []Send) { return Receipt{}, nil }

func (s *asynchronous) Leave(agent int) []Send {
	if s.known(agent) {
		s.Members[agent].Left = true
	}
	return nil
}

// asyncHead is the head of a snapshot.
type asyncHead struct {
	Core     core
	Norms    []float64
	Seen     []federated.Mark
	Versions []int // of the buffer
}

func (s *asynchronous) State() (State, error) {
	head := asyncHead{Core: s.core, Norms: s.guard.Norms, Seen: s.guard.Seen}
	vectors := s.rule.save()
	for i, b := range s.buffer {
		head.Versions = append(head.Versions, b.Version)
		vectors["buffer/"+strconv.Itoa(i)] = b.vector
	}
	return pack(head, vectors)
}

func (s *asynchronous) Restore(state State) error {
	var head asyncHead
	if err := unpack(state, &head, s.d); err != nil {
		return err
	}
	if err := s.take(head.Core); err != nil {
		return err
	}
	s.guard.Norms, s.guard.Seen, s.buffer = head.Norms, head.Seen, nil
	for i, version := range head.Versions {
		s.buffer = append(s.buffer, buffered{version, state.Vectors["buffer/"+strconv.Itoa(i)]})
	}
	return s.rule.load(s.Now/s.size(), state.Vectors)
}
