package link

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/posttrain/posttrain/federated/protocol"
)

// handleRequest answers an envelope of an agent that is not an update.
func (s *coordinator) handleRequest(ctx context.Context, m *nats.Msg, name string) error {
	e, err := s.unseal(m, name)
	if err != nil || CheckName(e.Instance) != nil {
		s.warnOf(name, "a message of agent %q is dropped: %v", name, err)
		return nil
	}
	switch a := s.members[name]; {
	case e.Protocol != protocol.Version:
		return s.reject(e, fmt.Errorf("protocol version: found %d, want %d: want the same version of posttrain on "+
			"both sides", e.Protocol, protocol.Version))
	case e.Op == opHello:
		return s.hello(ctx, e)
	case a == nil || a.instance != e.Instance:
		return s.hello(ctx, e) // the server has restarted, or another process has come between
	case e.Op == opJoin:
		a.status.Seen = time.Now()
		return s.join(ctx, a, e)
	case e.Op == opBye:
		a.joined, a.ended, a.instance = false, true, ""
		return nil
	case !a.joined:
		return s.hello(ctx, e)
	default:
		a.status.Seen = time.Now()
		s.send(ctx, a)
		return nil
	}
}

// reject refuses an agent for good.
func (s *coordinator) reject(e *envelope, why error) error {
	s.warnOf(e.Agent, "agent %q refused: %s", e.Agent, why)
	a := &member{name: e.Agent, instance: e.Instance}
	if err := s.publish(a, &envelope{Op: opRefuse, Reason: why.Error()}); err != nil {
		s.warnOf(e.Agent, "agent %q: %s", e.Agent, err)
	}
	return nil
}

// hello gives an agent its number and the run's configuration.
func (s *coordinator) hello(ctx context.Context, e *envelope) error {
	a := s.members[e.Agent]
	if a == nil {
		number, err := s.freeNumber(e.Agent)
		if err != nil {
			return s.reject(e, err)
		}
		if err := s.StoreNumber(e.Agent, number); err != nil {
			return err
		}
		if a, err = s.register(e.Agent, number); err != nil {
			return err
		}
	}
	if a.revoked {
		return s.reject(e, fmt.Errorf("agent %q was revoked and has left this run for good: want another name", e.Agent))
	}
	if a.instance != "" && a.instance != e.Instance {
		s.startProbe(ctx, a, e)
		return nil
	}
	s.greet(a, e)
	return nil
}

// greet answers the process that takes part.
func (s *coordinator) greet(a *member, e *envelope) {
	if a.instance != e.Instance {
		a.instance, a.joined, a.envelope = e.Instance, false, nil
	}
	a.status.Seen, a.ended = time.Now(), false
	err := s.publish(a, &envelope{Op: opConfig, Config: &runConfig{Number: a.number, Text: s.Config,
		Type: string(s.Format.Type)}})
	if err != nil {
		s.warnOf(a.name, "agent %q: not answered, it will ask again: %s", a.name, err)
	}
}

// probeTimeout is how long another process of an agent has to show that it lives. One that is gone is known at once,
// unless its machine vanished without a word.
const probeTimeout = time.Second

// probe says whether the process that takes part lives, though another has greeted.
type probe struct {
	member   *member
	instance string
	alive    bool
	other    *envelope
}

// startProbe sees beside everything else whether the process of an agent lives, where another greets.
func (s *coordinator) startProbe(ctx context.Context, a *member, other *envelope) {
	if a.probing {
		return
	}
	a.probing = true
	p := probe{member: a, instance: a.instance, other: other}
	go func() {
		limited, stop := context.WithTimeout(ctx, probeTimeout)
		defer stop()
		_, err := s.nc.RequestWithContext(limited, instanceOf(subject(s.Format.Run, "get", a.name), p.instance), nil)
		p.alive = err == nil
		select {
		case s.probes <- p:
		case <-ctx.Done():
		}
	}()
}

// endProbe refuses another process of an agent while the first lives.
func (s *coordinator) endProbe(p probe) error {
	p.member.probing = false
	switch {
	case p.member.revoked || p.member.instance != "" && p.member.instance != p.instance:
		return nil // what has changed in between is answered when it asks again
	case p.alive && p.member.instance != "":
		return s.reject(p.other, fmt.Errorf("agent %q takes part in another process already: want another --agent, or "+
			"end that process first", p.other.Agent))
	}
	s.greet(p.member, p.other)
	return nil
}

// freeNumber is a number for a new agent: the one that its name ends in, such as 3 in agent-3, or else the lowest.
func (s *coordinator) freeNumber(name string) (int, error) {
	taken := make([]bool, s.Agents)
	for _, a := range s.members {
		taken[a.number] = true
	}
	var number int
	digits := name[strings.LastIndexAny(name, "-_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")+1:]
	if _, err := fmt.Sscanf(digits, "%d", &number); err == nil && number < s.Agents && !taken[number] {
		return number, nil
	}
	for i, t := range taken {
		if !t {
			return i, nil
		}
	}
	return 0, fmt.Errorf("the run has %d agents and all places are taken: want a name of one of them, or a run with "+
		"more agents", s.Agents)
}

// register makes an agent known, and answers its requests for chunks of its task.
func (s *coordinator) register(name string, number int) (*member, error) {
	if number < 0 || number >= s.Agents || s.byNumber(number) != nil {
		return nil, fmt.Errorf("agent %q has number %d: want 0 to %d, each once: is link.json damaged?", name, number,
			s.Agents-1)
	}
	a := &member{name: name, number: number, status: &AgentStatus{Name: name, Number: number}}
	a.revoked, a.outbox.replyPrefix = slices.Contains(s.Revoked, number), inboxPrefix(name)+"."
	if _, err := s.nc.Subscribe(subject(s.Format.Run, "get", name), a.outbox.serveChunk); err != nil {
		return nil, err
	}
	s.members[name] = a
	s.status.Agents = append(s.status.Agents, a.status)
	slices.SortFunc(s.status.Agents, func(a, b *AgentStatus) int { return a.Number - b.Number })
	return a, nil
}

// join compares what the agent trains with what the server does, and sends its task. A process that greets twice, since
// the first answer was late, joins twice: its task stays in its place, where it may be reading it.
func (s *coordinator) join(ctx context.Context, a *member, e *envelope) error {
	if e.Identity == nil {
		return s.reject(e, errors.New("it does not say what it trains"))
	}
	if err := compare(*e.Identity, s.Identity); err != nil {
		return s.reject(e, err)
	}
	if a.joined && !e.Whole {
		s.send(ctx, a)
		return nil
	}
	if ok, _ := a.joins.allow(); !ok {
		return nil // it will ask again
	}
	_, sends, err := s.Journal.Do(Join, a.number)
	if err != nil {
		return err
	}
	a.joined, a.receipt = true, nil
	if s.Journal.Done() {
		stop := protocol.Task{Kind: protocol.Stop, Version: s.Journal.Version()}
		sends = []protocol.Send{{Agent: a.number, Task: stop}}
	}
	s.deliver(ctx, sends)
	if a.task == nil {
		s.send(ctx, a)
	}
	return nil
}

// compare names the first difference between two identities, with both values.
func compare(found, want protocol.Identity) error {
	facts := func(i protocol.Identity) (all []string) {
		all = append(all, fmt.Sprintf("protocol version %d", i.Protocol), "task "+i.Task,
			fmt.Sprintf("%d tensors", len(i.Tensors)), fmt.Sprintf("a base model with SHA-256 %.16s", i.Base))
		for n, t := range i.Tensors {
			all = append(all, fmt.Sprintf("tensor %d %s %v %s, decay %v", n, t.Name, t.Shape, t.Type, !t.NoDecay))
		}
		return all
	}
	a, b := facts(found), facts(want)
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Errorf("the agent has %s, the server %s", a[i], b[i])
		}
	}
	return nil
}
