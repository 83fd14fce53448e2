package link

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/posttrain/posttrain/federated"
	"github.com/posttrain/posttrain/federated/protocol"
)

// durable makes what happens to a server durable before it takes effect. An error means that it could not: nothing has
// happened, and the run must end.
type durable interface {
	Do(what string, agent int) (protocol.Receipt, []protocol.Send, error)
	Receive(u protocol.Update, message []byte) (protocol.Receipt, []protocol.Send, error)
	Version() int
	Done() bool
}

// ServerOptions say what a server serves.
type ServerOptions struct {
	Broker   *Broker
	Form     Form
	Agents   int               // most agents
	Config   string            // the run's configuration for the agents, YAML
	Identity protocol.Identity // of the server's workload
	Keeper   durable
	Deadline time.Duration  // of a synchronous round; 0: none
	Places   map[string]int // numbers of the agents that took part before the server's restart
	Left     []int          // numbers of the agents that had left the run for good before the server's restart

	// NewPlace stores the number of a new agent before it is used. Warn gets lines for the user. None may be nil.
	NewPlace func(name string, number int) error
	Tick     func(*Status) // about once a second: names and last letters of the agents, and refusals by the link
	Warn     func(format string, args ...any)
}

// Reasons for refusals by the link, beside those of the server's guard.
const (
	reasonDamaged = "damaged" // its SHA-256 does not fit
	reasonForeign = "foreign" // of another run, agent or protocol version, or not signed
	reasonTooLong = "length"  // more numbers than the run's parameters allow
	reasonFlood   = "flood"   // letters of any kind, too many at a time
)

// Updates that the keeper need not see: its journal has those that answer a task, and each once.
var (
	errAgain   = errors.New("it has come before")
	errUnasked = errors.New("answers no open task of its agent")
)

// serving is a running server's state. One goroutine owns it.
type serving struct {
	ServerOptions
	nc      *nats.Conn
	pulled  chan pulled
	pinged  chan pinged
	letters *sieve
	key     nkeys.KeyPair // nil: a run without keys
	members map[string]*member
	strange limiter // of lines about those that are no members
	status  *Status
	round   *time.Timer // nil before the first round, and without a deadline
	open    taskKey     // of the round that the timer is for
	overdue bool        // the timer has fired, and there was no quorum
}

// member is an agent as the server sees it.
type member struct {
	name     string
	number   int
	instance string // of the process that takes part; "" before it has joined since the server's start
	joined   bool
	gone     bool // it has said goodbye, or is revoked
	left     bool // it is revoked
	task     *protocol.Task
	letter   *letter // that brings the task
	receipt  *receipt
	offered  offer              // the task, where it is long
	pulling  *letter            // brings an update that is on its way; nil: none
	next     *letter            // brings one to read instead, when that has ended
	stop     context.CancelFunc // of pulling
	pinging  bool
	lines    limiter // about it
	joins    limiter
	status   *AgentStatus
}

// pulled is an update that was longer than a letter, or why it could not be read.
type pulled struct {
	from   *member
	letter *letter
	blob   []byte
	err    error
}

// Serve runs the server until its keeper is done, and then stops the agents. It returns the context's error when that
// ends first.
func Serve(ctx context.Context, o ServerOptions) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	nc, err := o.Broker.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	s := &serving{ServerOptions: o, nc: nc, members: map[string]*member{}, pulled: make(chan pulled),
		pinged: make(chan pinged), letters: newSieve()}
	s.status = &Status{Run: o.Form.Run, Refused: map[string]int{}}
	for name, number := range o.Places {
		if _, err := s.place(name, number); err != nil {
			return err
		}
	}
	if keys := o.Broker.Keys; keys != nil {
		s.key = keys.signer
	} else if _, err := nc.Subscribe(openRun, func(m *nats.Msg) { m.Respond([]byte(o.Form.Run)) }); err != nil {
		return err
	}
	return s.loop(ctx)
}

// loop handles one thing at a time, so that the keeper sees them in one order. Letters of an agent come in the order in
// which it has sent them: it asks after its update.
func (s *serving) loop(ctx context.Context) error {
	_, err := s.nc.Subscribe(subject(s.Form.Run, "*", "*"), func(m *nats.Msg) { s.letters.pass(ctx, m) })
	if err != nil {
		return err
	}
	if s.Deadline > 0 && len(s.Places) > 0 { // those who answered before the restart get no task that starts the clock
		s.round = time.NewTimer(s.Deadline)
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for !s.Keeper.Done() {
		var late <-chan time.Time
		if s.round != nil {
			late = s.round.C
		}
		var err error
		select {
		case <-ctx.Done():
			return ctx.Err()
		case m := <-s.letters.out:
			if name, update := s.isUpdate(m); update {
				err = s.take(ctx, m, name)
			} else {
				err = s.answer(ctx, m, name)
			}
		case p := <-s.pulled:
			err = s.arrived(ctx, p)
		case p := <-s.pinged:
			err = s.ping(p)
		case <-late:
			err = s.late(ctx)
		case <-tick.C:
			err = s.tick(ctx)
		}
		if err != nil {
			return err
		}
	}
	return s.finish(ctx)
}

// complain says what is wrong with what an agent has sent.
func (s *serving) complain(name, format string, args ...any) {
	limit := &s.strange
	if a := s.members[name]; a != nil {
		limit = &a.lines
	}
	limit.warn(s.Warn, format, args...)
}

// isUpdate names the agent of a letter that waits no longer, and says whether it has an update.
func (s *serving) isUpdate(m *nats.Msg) (name string, update bool) {
	name = nameOf(m)
	s.letters.read(name)
	return name, m.Subject == subject(s.Form.Run, "up", name)
}

// take handles a letter with an update. A long one is pulled first, beside everything else.
func (s *serving) take(ctx context.Context, m *nats.Msg, name string) error {
	a := s.members[name]
	if a == nil {
		s.status.Refused[reasonForeign]++
		s.complain(name, "an update of agent %q, which has not joined, is dropped", name)
		return nil
	}
	l, err := s.unseal(m, name)
	switch {
	case err != nil:
		return s.settle(ctx, pulled{from: a, err: err})
	case l.Object == nil || a.asked(l.Key) != nil:
		return s.settle(ctx, pulled{from: a, letter: l, blob: l.blob})
	case CheckName(l.Instance) != nil:
		return s.settle(ctx, pulled{from: a, letter: l, err: fmt.Errorf("%w: its process has no name", ErrForeign)})
	case a.pulling != nil && *a.pulling.Object == *l.Object && a.pulling.Instance == l.Instance:
		return nil // it is on its way
	}
	s.pull(ctx, a, l)
	return nil
}

// asked refuses an update that is not the answer to the agent's open task.
func (a *member) asked(key taskKey) error {
	switch {
	case a.task != nil && keyOfTask(*a.task) == key:
		return nil
	case a.receipt != nil && a.receipt.Key == key:
		return errAgain
	}
	return fmt.Errorf("%s %w", key, errUnasked)
}

// pull reads a long update, instead of the one that is on its way, when that has ended: an agent has the server hold
// one at a time.
func (s *serving) pull(ctx context.Context, a *member, l *letter) {
	if a.pulling != nil {
		a.stop()
		a.next = l
		return
	}
	limited, stop := context.WithCancel(ctx)
	a.pulling, a.stop = l, stop
	go func() {
		from := instanceOf(subject(s.Form.Run, "get", a.name), l.Instance)
		blob, err := pull(limited, s.nc, from, l.Object, s.Form.Most())
		select {
		case s.pulled <- pulled{a, l, blob, err}:
		case <-ctx.Done():
		}
	}()
}

// arrived takes an update that was pulled. One that was not transferred is sent again when its agent asks.
func (s *serving) arrived(ctx context.Context, p pulled) error {
	next := p.from.next
	p.from.stop()
	p.from.pulling, p.from.next = nil, nil
	if next != nil {
		s.pull(ctx, p.from, next)
		return nil
	}
	if p.err != nil && !errors.Is(p.err, ErrDamaged) {
		s.complain(p.from.name, "update %s of agent %q is not transferred, it will come again: %s", p.letter.Key,
			p.from.name, p.err)
		return nil
	}
	return s.settle(ctx, p)
}

// settle handles an update that is whole, or says why it is refused. The letter is nil where it cannot be read.
func (s *serving) settle(ctx context.Context, p pulled) error {
	a, l := p.from, p.letter
	var u protocol.Update
	err := p.err
	if err == nil {
		err = a.asked(l.Key)
	}
	if err == nil {
		u, err = s.Form.DecodeUpdate(p.blob)
	}
	if err == nil && (u.Agent != a.number || keyOfUpdate(u) != l.Key) {
		err = fmt.Errorf("%w: found %s of agent %d, want %s of agent %d", ErrForeign, keyOfUpdate(u), u.Agent, l.Key,
			a.number)
	}
	switch {
	case errors.Is(err, errAgain): // its agent has not heard what became of it
		s.status.Refused[federated.ReasonDuplicate]++
		s.send(ctx, a)
	case err != nil:
		s.refuse(ctx, a, l, err)
	default:
		return s.receive(ctx, a, u, p.blob)
	}
	return nil
}

// unseal reads a letter of an agent, whose name is that of the subject.
func (s *serving) unseal(m *nats.Msg, name string) (*letter, error) {
	public := ""
	if keys := s.Broker.Keys; keys != nil {
		all, err := keys.registry()
		if err != nil {
			return nil, err
		}
		if public = all[name].Key; public == "" || all[name].Revoked {
			return nil, fmt.Errorf("%w: agent %q has no key, or a revoked one", ErrForeign, name)
		}
	}
	l, err := unseal(m, s.Form.Run, public)
	if err == nil && l.Agent != name {
		err = fmt.Errorf("%w: a letter of agent %q on the subject of agent %q", ErrForeign, l.Agent, name)
	}
	return l, err
}

// receive gives an update to the keeper.
func (s *serving) receive(ctx context.Context, a *member, u protocol.Update, message []byte) error {
	r, sends, err := s.Keeper.Receive(u, message)
	if err != nil {
		return err
	}
	a.status.Seen = time.Now()
	a.receipt = &receipt{Key: keyOfUpdate(u), Accepted: r.Accepted, Reason: r.Reason, Detail: r.Detail, Bound: r.Bound,
		Version: s.Keeper.Version()}
	if !r.Accepted {
		s.complain(a.name, "update %s of agent %q refused (%s): %s", a.receipt.Key, a.name, r.Reason, r.Detail)
	}
	a.task, a.letter = nil, nil
	if s.deliver(ctx, sends); a.letter == nil || a.letter.Receipt != a.receipt {
		s.send(ctx, a)
	}
	if s.overdue && r.Accepted {
		return s.late(ctx)
	}
	return s.endIfStuck()
}

// endIfStuck ends a run whose agents are all here and would wait for ever, and them; or one that all have left.
func (s *serving) endIfStuck() error {
	if len(s.members) < s.Agents || s.Keeper.Done() {
		return nil
	}
	left := true
	for _, a := range s.members {
		if left = left && a.left; !a.left && (!a.joined || a.task != nil) {
			return nil
		}
	}
	if s.round != nil && !left {
		return nil // the deadline is to come
	}
	for _, a := range s.members {
		if err := s.publish(a, &letter{Op: opRefuse, Reason: protocol.ErrStuck.Error()}); err != nil {
			s.Warn("agent %q: %s", a.name, err)
		}
	}
	s.Tick(s.status)
	return errors.Join(protocol.ErrStuck, s.nc.FlushTimeout(farewell))
}

// refuse says what is wrong with an update that the keeper did not get.
func (s *serving) refuse(ctx context.Context, a *member, l *letter, err error) {
	r := &receipt{Reason: reasonDamaged, Detail: err.Error()}
	switch {
	case errors.Is(err, ErrLength):
		r.Reason = reasonTooLong
	case errors.Is(err, ErrForeign):
		r.Reason = reasonForeign
	case errors.Is(err, errUnasked):
		r.Reason = federated.ReasonVersion
	}
	s.status.Refused[r.Reason]++
	s.complain(a.name, "update of agent %q refused (%s): %s", a.name, r.Reason, err)
	switch {
	case l != nil:
		r.Key, a.receipt = l.Key, r
		s.send(ctx, a)
	case r.Reason == reasonDamaged: // nobody can say which update it was: the agent has one under way
		last := a.receipt
		a.receipt = r
		s.send(ctx, a)
		a.receipt = last
	}
}

// deliver sends tasks to the agents that are here. The others get theirs when they ask.
func (s *serving) deliver(ctx context.Context, sends []protocol.Send) {
	for _, send := range sends {
		s.startRound(send.Task)
		if a := s.byNumber(send.Agent); a != nil {
			a.task, a.letter = &send.Task, nil
			s.send(ctx, a)
		}
	}
}

func (s *serving) byNumber(number int) *member {
	for _, a := range s.members {
		if a.number == number {
			return a
		}
	}
	return nil
}

// startRound starts the clock of a new round.
func (s *serving) startRound(t protocol.Task) {
	if now := keyOfTask(t); s.Deadline > 0 && (s.round == nil || s.open != now) {
		s.open, s.overdue = now, false
		s.round = time.NewTimer(s.Deadline)
	}
}

// late closes a round. Without a quorum it is overdue, and the next update may close it.
func (s *serving) late(ctx context.Context) error {
	_, sends, err := s.Keeper.Do(Deadline, 0)
	if err != nil {
		return err
	}
	s.overdue = len(sends) == 0
	s.deliver(ctx, sends)
	return nil
}

// send sends an agent its task, or word to wait, with the last receipt.
func (s *serving) send(ctx context.Context, a *member) {
	if a.instance == "" || !a.joined {
		return
	}
	l, err := s.letterFor(a)
	if err == nil {
		err = s.publish(a, l)
	}
	if err != nil && ctx.Err() == nil {
		s.complain(a.name, "agent %q: task not sent, it will ask again: %s", a.name, err)
	}
}

// letterFor makes the letter with an agent's task. A long task is offered.
func (s *serving) letterFor(a *member) (*letter, error) {
	if a.task == nil {
		return &letter{Op: opWait, Receipt: a.receipt}, nil
	}
	if a.letter == nil {
		blob, err := s.Form.EncodeTask(*a.task)
		if err != nil {
			return nil, err
		}
		l := &letter{Op: opTask, Key: keyOfTask(*a.task), blob: blob}
		if len(blob) > chunk {
			l.Object, l.blob = a.offered.put(blob), nil
		}
		a.letter = l
	}
	a.letter.Receipt = a.receipt
	return a.letter, nil
}

// publish sends a letter to the process of an agent.
func (s *serving) publish(a *member, l *letter) error {
	l.Run, l.Agent, l.Instance, l.Protocol = s.Form.Run, a.name, a.instance, protocol.Version
	m, err := l.seal(instanceOf(subject(s.Form.Run, "to", a.name), a.instance), s.key)
	if err != nil {
		return err
	}
	return s.nc.PublishMsg(m)
}

// tick removes revoked agents, and reports. A connection that is closed for good ends the run's server.
func (s *serving) tick(ctx context.Context) error {
	if s.nc.IsClosed() {
		return fmt.Errorf("the NATS server has closed the connection: %w",
			cmp.Or(s.nc.LastError(), nats.ErrConnectionClosed))
	}
	if keys := s.Broker.Keys; keys != nil {
		all, err := keys.registry()
		if err != nil {
			return err
		}
		s.Broker.expel(all)
		for _, name := range slices.Sorted(maps.Keys(s.members)) {
			if a := s.members[name]; !a.left && all[name].Revoked {
				if err := s.leave(ctx, a); err != nil {
					return err
				}
			}
		}
	}
	dropped := s.letters.report()
	for _, name := range slices.Sorted(maps.Keys(dropped)) {
		s.status.Refused[reasonFlood] += dropped[name]
		s.complain(name, "%d letters of agent %q are dropped: it sends more than %d at a time", dropped[name], name,
			mostWaiting)
	}
	s.Tick(s.status)
	return nil
}

// leave removes an agent for good.
func (s *serving) leave(ctx context.Context, a *member) error {
	_, sends, err := s.Keeper.Do(Leave, a.number)
	if err != nil {
		return err
	}
	a.joined, a.gone, a.left, a.task, a.letter = false, true, true, nil, nil
	s.Warn("agent %q is revoked and leaves the run", a.name)
	s.deliver(ctx, sends) // it may have closed a round
	return s.endIfStuck()
}

// farewell is how long a server that is done waits for the agents to hear it, and for those that may be about to come
// back.
const farewell = 3 * time.Second

// finish has every agent stop, and waits until they have said goodbye.
func (s *serving) finish(ctx context.Context) error {
	s.Tick(s.status)
	defer s.Tick(s.status) // with the agents' last letters
	for _, a := range s.members {
		if a.task == nil || a.task.Kind != protocol.Stop {
			a.task, a.letter = &protocol.Task{Kind: protocol.Stop, Version: s.Keeper.Version()}, nil
			s.send(ctx, a)
		}
	}
	end := time.After(farewell)
	for {
		if !slices.ContainsFunc(slices.Collect(maps.Values(s.members)), func(a *member) bool { return !a.gone }) {
			return s.nc.FlushTimeout(farewell)
		}
		select {
		case <-ctx.Done():
			return nil // the run is done all the same
		case <-end:
			return s.nc.FlushTimeout(farewell)
		case p := <-s.pinged:
			if err := s.ping(p); err != nil {
				return err
			}
		case m := <-s.letters.out:
			name, update := s.isUpdate(m)
			if update { // it comes too late
				continue
			}
			if err := s.answer(ctx, m, name); err != nil {
				return err
			}
		}
	}
}
