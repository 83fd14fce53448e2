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

// answer handles a letter of an agent that is not an update.
func (s *serving) answer(ctx context.Context, m *nats.Msg, name string) error {
	l, err := s.unseal(m, name)
	if err != nil || CheckName(l.Instance) != nil {
		s.complain(name, "a letter of agent %q is dropped: %v", name, err)
		return nil
	}
	switch a := s.members[name]; {
	case l.Protocol != protocol.Version:
		return s.reject(l, fmt.Errorf("protocol version: found %d, want %d: want the same version of posttrain on "+
			"both sides", l.Protocol, protocol.Version))
	case l.Op == opHello:
		return s.hello(ctx, l)
	case a == nil || a.instance != l.Instance:
		return s.hello(ctx, l) // the server has restarted, or another process has come between
	case l.Op == opJoin:
		a.status.Seen = time.Now()
		return s.join(ctx, a, l)
	case l.Op == opBye:
		a.joined, a.gone, a.instance = false, true, ""
		return nil
	case !a.joined:
		return s.hello(ctx, l)
	default:
		a.status.Seen = time.Now()
		s.send(ctx, a)
		return nil
	}
}

// reject refuses an agent for good.
func (s *serving) reject(l *letter, why error) error {
	s.complain(l.Agent, "agent %q refused: %s", l.Agent, why)
	a := &member{name: l.Agent, instance: l.Instance}
	if err := s.publish(a, &letter{Op: opRefuse, Reason: why.Error()}); err != nil {
		s.complain(l.Agent, "agent %q: %s", l.Agent, err)
	}
	return nil
}

// hello gives an agent its number and the run's configuration.
func (s *serving) hello(ctx context.Context, l *letter) error {
	a := s.members[l.Agent]
	if a == nil {
		number, err := s.free(l.Agent)
		if err != nil {
			return s.reject(l, err)
		}
		if err := s.NewPlace(l.Agent, number); err != nil {
			return err
		}
		if a, err = s.place(l.Agent, number); err != nil {
			return err
		}
	}
	if a.left {
		return s.reject(l, fmt.Errorf("agent %q was revoked and has left this run for good: want another name", l.Agent))
	}
	if a.instance != "" && a.instance != l.Instance {
		s.look(ctx, a, l)
		return nil
	}
	s.greet(a, l)
	return nil
}

// greet answers the process that takes part.
func (s *serving) greet(a *member, l *letter) {
	if a.instance != l.Instance {
		a.instance, a.joined, a.letter = l.Instance, false, nil
	}
	a.status.Seen, a.gone = time.Now(), false
	err := s.publish(a, &letter{Op: opConfig, Config: &runConfig{Number: a.number, Text: s.Config,
		Type: string(s.Form.Type)}})
	if err != nil {
		s.complain(a.name, "agent %q: not answered, it will ask again: %s", a.name, err)
	}
}

// pingTimeout is how long another process of an agent has to show that it lives. One that is gone is known at once,
// unless its machine vanished without a word.
const pingTimeout = time.Second

// pinged says whether the process that takes part lives, though another has greeted.
type pinged struct {
	who      *member
	instance string
	alive    bool
	other    *letter
}

// look sees beside everything else whether the process of an agent lives, where another greets.
func (s *serving) look(ctx context.Context, a *member, other *letter) {
	if a.pinging {
		return
	}
	a.pinging = true
	p := pinged{who: a, instance: a.instance, other: other}
	go func() {
		limited, stop := context.WithTimeout(ctx, pingTimeout)
		defer stop()
		_, err := s.nc.RequestWithContext(limited, instanceOf(subject(s.Form.Run, "get", a.name), p.instance), nil)
		p.alive = err == nil
		select {
		case s.pinged <- p:
		case <-ctx.Done():
		}
	}()
}

// ping refuses another process of an agent while the first lives.
func (s *serving) ping(p pinged) error {
	p.who.pinging = false
	switch {
	case p.who.left || p.who.instance != "" && p.who.instance != p.instance:
		return nil // what has changed in between is answered when it asks again
	case p.alive && p.who.instance != "":
		return s.reject(p.other, fmt.Errorf("agent %q takes part in another process already: want another --agent, or "+
			"end that process first", p.other.Agent))
	}
	s.greet(p.who, p.other)
	return nil
}

// free is a number for a new agent: the one that its name ends in, such as 3 in agent-3, or else the lowest.
func (s *serving) free(name string) (int, error) {
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

// place makes an agent known, and answers its requests for chunks of its task.
func (s *serving) place(name string, number int) (*member, error) {
	if number < 0 || number >= s.Agents || s.byNumber(number) != nil {
		return nil, fmt.Errorf("agent %q has number %d: want 0 to %d, each once: is link.json damaged?", name, number,
			s.Agents-1)
	}
	a := &member{name: name, number: number, status: &AgentStatus{Name: name, Number: number}}
	a.left, a.offered.to = slices.Contains(s.Left, number), inboxPrefix(name)+"."
	if _, err := s.nc.Subscribe(subject(s.Form.Run, "get", name), a.offered.answer); err != nil {
		return nil, err
	}
	s.members[name] = a
	s.status.Agents = append(s.status.Agents, a.status)
	slices.SortFunc(s.status.Agents, func(a, b *AgentStatus) int { return a.Number - b.Number })
	return a, nil
}

// join compares what the agent trains with what the server does, and sends its task. A process that greets twice, since
// the first answer was late, joins twice: its task stays in its place, where it may be reading it.
func (s *serving) join(ctx context.Context, a *member, l *letter) error {
	if l.Identity == nil {
		return s.reject(l, errors.New("it does not say what it trains"))
	}
	if err := compare(*l.Identity, s.Identity); err != nil {
		return s.reject(l, err)
	}
	if a.joined && !l.Whole {
		s.send(ctx, a)
		return nil
	}
	if ok, _ := a.joins.pass(); !ok {
		return nil // it will ask again
	}
	_, sends, err := s.Keeper.Do(Join, a.number)
	if err != nil {
		return err
	}
	a.joined, a.receipt = true, nil
	if s.Keeper.Done() {
		stop := protocol.Task{Kind: protocol.Stop, Version: s.Keeper.Version()}
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
