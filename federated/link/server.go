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

// eventLog makes what happens to a server durable before it takes effect. An error means that it could not: nothing has
// happened, and the run must end.
type eventLog interface {
	Do(what string, agent int) (protocol.Receipt, []protocol.Send, error)
	Receive(u protocol.Update, message []byte) (protocol.Receipt, []protocol.Send, error)
	Version() int
	Done() bool
}

// ServerOptions say what a server serves.
type ServerOptions struct {
	Broker   *Broker
	Format   Format
	Agents   int               // most agents
	Config   string            // the run's configuration for the agents, YAML
	Identity protocol.Identity // of the server's workload
	Journal  eventLog
	Deadline time.Duration  // of a synchronous round; 0: none
	Numbers  map[string]int // numbers of the agents that took part before the server's restart
	Revoked  []int          // numbers of the agents that had left the run for good before the server's restart

	// StoreNumber stores the number of a new agent before it is used. Warn gets lines for the user. None may be nil.
	StoreNumber func(name string, number int) error
	Tick        func(*Status) // about once a second: the agents, when each was last heard, and refusals by the link
	Warn        func(format string, args ...any)
}

// Reasons for refusals by the link, beside the reasons of the server's guard.
const (
	reasonDamaged = "damaged" // its SHA-256 does not fit
	reasonForeign = "foreign" // of another run, agent or protocol version, or not signed
	reasonTooLong = "length"  // more numbers than the run's parameters allow
	reasonFlood   = "flood"   // envelopes of any kind, too many at a time
)

// Updates that the journal need not see: it has each answer to a task, once.
var (
	errDuplicate = errors.New("it has come before")
	errNoTask    = errors.New("answers no open task of its agent")
)

// coordinator is a running server's state. One goroutine owns it.
type coordinator struct {
	ServerOptions
	nc         *nats.Conn
	transfers  chan transfer
	probes     chan probe
	inbox      *inbox
	key        nkeys.KeyPair // nil: a run without keys
	members    map[string]*member
	unknown    limiter // of lines about agents that are no members
	status     *Status
	roundTimer *time.Timer // nil before the first round, and without a deadline
	roundKey   taskKey     // of the round that the timer is for
	overdue    bool        // the timer has fired, and there was no quorum
}

// member is an agent as the server sees it.
type member struct {
	name     string
	number   int
	instance string // of the process that takes part; "" before it has joined since the server's start
	joined   bool
	ended    bool // it has said goodbye, or is revoked
	revoked  bool // it is revoked
	task     *protocol.Task
	envelope *envelope // that brings the task
	receipt  *receipt
	outbox   outbox             // the task, where it is long
	incoming *envelope          // whose update is on its way; nil: none
	queued   *envelope          // whose update comes next
	cancel   context.CancelFunc // of the transfer
	probing  bool
	lines    limiter // of lines about it
	joins    limiter
	status   *AgentStatus
}

// transfer is an update that was longer than a chunk, or why it could not be read.
type transfer struct {
	member   *member
	envelope *envelope
	blob     []byte
	err      error
}

// Serve runs the server until its run is done, and then stops the agents. It returns the context's error when that ends
// first.
func Serve(ctx context.Context, o ServerOptions) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	nc, err := o.Broker.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	s := &coordinator{ServerOptions: o, nc: nc, members: map[string]*member{}, transfers: make(chan transfer),
		probes: make(chan probe), inbox: newInbox()}
	s.status = &Status{Run: o.Format.Run, Refused: map[string]int{}}
	for name, number := range o.Numbers {
		if _, err := s.register(name, number); err != nil {
			return err
		}
	}
	if keys := o.Broker.Keys; keys != nil {
		s.key = keys.signer
	} else if _, err := nc.Subscribe(openRun, func(m *nats.Msg) { m.Respond([]byte(o.Format.Run)) }); err != nil {
		return err
	}
	return s.loop(ctx)
}

// loop handles one thing at a time, so that the journal sees them in one order. Envelopes of an agent come in the order
// in which it has sent them: it asks after its update.
func (s *coordinator) loop(ctx context.Context) error {
	_, err := s.nc.Subscribe(subject(s.Format.Run, "*", "*"), func(m *nats.Msg) { s.inbox.put(ctx, m) })
	if err != nil {
		return err
	}
	if s.Deadline > 0 && len(s.Numbers) > 0 { // those who answered before the restart get no task that starts the clock
		s.roundTimer = time.NewTimer(s.Deadline)
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for !s.Journal.Done() {
		var late <-chan time.Time
		if s.roundTimer != nil {
			late = s.roundTimer.C
		}
		var err error
		select {
		case <-ctx.Done():
			return ctx.Err()
		case m := <-s.inbox.queue:
			if name, update := s.isUpdate(m); update {
				err = s.handleUpdate(ctx, m, name)
			} else {
				err = s.handleRequest(ctx, m, name)
			}
		case t := <-s.transfers:
			err = s.endTransfer(ctx, t)
		case p := <-s.probes:
			err = s.endProbe(p)
		case <-late:
			err = s.closeRound(ctx)
		case <-tick.C:
			err = s.tick(ctx)
		}
		if err != nil {
			return err
		}
	}
	return s.finish(ctx)
}

// warnOf says what is wrong with what an agent has sent, not too often.
func (s *coordinator) warnOf(name, format string, args ...any) {
	limit := &s.unknown
	if a := s.members[name]; a != nil {
		limit = &a.lines
	}
	limit.warn(s.Warn, format, args...)
}

// isUpdate takes an envelope out of the inbox, names its agent, and says whether it has an update.
func (s *coordinator) isUpdate(m *nats.Msg) (name string, update bool) {
	name = nameOf(m)
	s.inbox.remove(name)
	return name, m.Subject == subject(s.Format.Run, "up", name)
}

// handleUpdate opens an envelope with an update. A long one is pulled first, beside everything else.
func (s *coordinator) handleUpdate(ctx context.Context, m *nats.Msg, name string) error {
	a := s.members[name]
	if a == nil {
		s.status.Refused[reasonForeign]++
		s.warnOf(name, "an update of agent %q, which has not joined, is dropped", name)
		return nil
	}
	e, err := s.unseal(m, name)
	switch {
	case err != nil:
		return s.judgeUpdate(ctx, transfer{member: a, err: err})
	case e.Object == nil || a.checkTask(e.Key) != nil:
		return s.judgeUpdate(ctx, transfer{member: a, envelope: e, blob: e.blob})
	case CheckName(e.Instance) != nil:
		err := fmt.Errorf("%w: its process has no name", ErrForeign)
		return s.judgeUpdate(ctx, transfer{member: a, envelope: e, err: err})
	case a.incoming != nil && *a.incoming.Object == *e.Object && a.incoming.Instance == e.Instance:
		return nil // it is on its way
	}
	s.startTransfer(ctx, a, e)
	return nil
}

// checkTask refuses an update that is not the answer to the agent's open task.
func (a *member) checkTask(key taskKey) error {
	switch {
	case a.task != nil && keyOfTask(*a.task) == key:
		return nil
	case a.receipt != nil && a.receipt.Key == key:
		return errDuplicate
	}
	return fmt.Errorf("%s %w", key, errNoTask)
}

// startTransfer reads a long update. If one of the agent is on its way, that ends first: an agent has the server hold
// one at a time.
func (s *coordinator) startTransfer(ctx context.Context, a *member, e *envelope) {
	if a.incoming != nil {
		a.cancel()
		a.queued = e
		return
	}
	limited, stop := context.WithCancel(ctx)
	a.incoming, a.cancel = e, stop
	go func() {
		from := instanceOf(subject(s.Format.Run, "get", a.name), e.Instance)
		blob, err := pull(limited, s.nc, from, e.Object, s.Format.MaxBytes())
		select {
		case s.transfers <- transfer{a, e, blob, err}:
		case <-ctx.Done():
		}
	}()
}

// endTransfer takes an update that was pulled. One that was not transferred is sent again when its agent asks.
func (s *coordinator) endTransfer(ctx context.Context, t transfer) error {
	next := t.member.queued
	t.member.cancel()
	t.member.incoming, t.member.queued = nil, nil
	if next != nil {
		s.startTransfer(ctx, t.member, next)
		return nil
	}
	if t.err != nil && !errors.Is(t.err, ErrDamaged) {
		s.warnOf(t.member.name, "update %s of agent %q is not transferred, it will come again: %s", t.envelope.Key,
			t.member.name, t.err)
		return nil
	}
	return s.judgeUpdate(ctx, t)
}

// judgeUpdate handles an update that is whole, or says why it is refused. The envelope is nil where it cannot be read.
func (s *coordinator) judgeUpdate(ctx context.Context, t transfer) error {
	a, e := t.member, t.envelope
	var u protocol.Update
	err := t.err
	if err == nil {
		err = a.checkTask(e.Key)
	}
	if err == nil {
		u, err = s.Format.DecodeUpdate(t.blob)
	}
	if err == nil && (u.Agent != a.number || keyOfUpdate(u) != e.Key) {
		err = fmt.Errorf("%w: found %s of agent %d, want %s of agent %d", ErrForeign, keyOfUpdate(u), u.Agent, e.Key,
			a.number)
	}
	switch {
	case errors.Is(err, errDuplicate): // its agent has not heard what became of it
		s.status.Refused[federated.ReasonDuplicate]++
		s.send(ctx, a)
	case err != nil:
		s.refuseUpdate(ctx, a, e, err)
	default:
		return s.applyUpdate(ctx, a, u, t.blob)
	}
	return nil
}

// unseal reads an envelope of an agent, whose name the subject says.
func (s *coordinator) unseal(m *nats.Msg, name string) (*envelope, error) {
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
	e, err := unseal(m, s.Format.Run, public)
	if err == nil && e.Agent != name {
		err = fmt.Errorf("%w: a message of agent %q on the subject of agent %q", ErrForeign, e.Agent, name)
	}
	return e, err
}

// applyUpdate gives an update to the journal.
func (s *coordinator) applyUpdate(ctx context.Context, a *member, u protocol.Update, message []byte) error {
	r, sends, err := s.Journal.Receive(u, message)
	if err != nil {
		return err
	}
	a.status.Seen = time.Now()
	a.receipt = &receipt{Key: keyOfUpdate(u), Accepted: r.Accepted, Reason: r.Reason, Detail: r.Detail, Bound: r.Bound,
		Version: s.Journal.Version()}
	if !r.Accepted {
		s.warnOf(a.name, "update %s of agent %q refused (%s): %s", a.receipt.Key, a.name, r.Reason, r.Detail)
	}
	a.task, a.envelope = nil, nil
	if s.deliver(ctx, sends); a.envelope == nil || a.envelope.Receipt != a.receipt {
		s.send(ctx, a)
	}
	if s.overdue && r.Accepted {
		return s.closeRound(ctx)
	}
	return s.endIfStuck()
}

// endIfStuck ends a run whose agents are all here and would wait for ever, and them; or one that all have left.
func (s *coordinator) endIfStuck() error {
	if len(s.members) < s.Agents || s.Journal.Done() {
		return nil
	}
	left := true
	for _, a := range s.members {
		if left = left && a.revoked; !a.revoked && (!a.joined || a.task != nil) {
			return nil
		}
	}
	if s.roundTimer != nil && !left {
		return nil // the deadline is to come
	}
	for _, a := range s.members {
		if err := s.publish(a, &envelope{Op: opRefuse, Reason: protocol.ErrStuck.Error()}); err != nil {
			s.Warn("agent %q: %s", a.name, err)
		}
	}
	s.Tick(s.status)
	return errors.Join(protocol.ErrStuck, s.nc.FlushTimeout(farewellTimeout))
}

// refuseUpdate says what is wrong with an update that the journal did not get.
func (s *coordinator) refuseUpdate(ctx context.Context, a *member, e *envelope, err error) {
	r := &receipt{Reason: reasonDamaged, Detail: err.Error()}
	switch {
	case errors.Is(err, ErrLength):
		r.Reason = reasonTooLong
	case errors.Is(err, ErrForeign):
		r.Reason = reasonForeign
	case errors.Is(err, errNoTask):
		r.Reason = federated.ReasonVersion
	}
	s.status.Refused[r.Reason]++
	s.warnOf(a.name, "update of agent %q refused (%s): %s", a.name, r.Reason, err)
	switch {
	case e != nil:
		r.Key, a.receipt = e.Key, r
		s.send(ctx, a)
	case r.Reason == reasonDamaged: // nobody can say which update it was: the agent has one under way
		last := a.receipt
		a.receipt = r
		s.send(ctx, a)
		a.receipt = last
	}
}

// deliver sends tasks to the agents that are here. The others get theirs when they ask.
func (s *coordinator) deliver(ctx context.Context, sends []protocol.Send) {
	for _, send := range sends {
		s.startRound(send.Task)
		if a := s.byNumber(send.Agent); a != nil {
			a.task, a.envelope = &send.Task, nil
			s.send(ctx, a)
		}
	}
}

func (s *coordinator) byNumber(number int) *member {
	for _, a := range s.members {
		if a.number == number {
			return a
		}
	}
	return nil
}

// startRound starts the clock of a new round.
func (s *coordinator) startRound(t protocol.Task) {
	if now := keyOfTask(t); s.Deadline > 0 && (s.roundTimer == nil || s.roundKey != now) {
		s.roundKey, s.overdue = now, false
		s.roundTimer = time.NewTimer(s.Deadline)
	}
}

// closeRound closes a round. Without a quorum it is overdue, and the next update may close it.
func (s *coordinator) closeRound(ctx context.Context) error {
	_, sends, err := s.Journal.Do(Deadline, 0)
	if err != nil {
		return err
	}
	s.overdue = len(sends) == 0
	s.deliver(ctx, sends)
	return nil
}

// send sends an agent its task, or word to wait, with the last receipt.
func (s *coordinator) send(ctx context.Context, a *member) {
	if a.instance == "" || !a.joined {
		return
	}
	e, err := s.envelopeFor(a)
	if err == nil {
		err = s.publish(a, e)
	}
	if err != nil && ctx.Err() == nil {
		s.warnOf(a.name, "agent %q: task not sent, it will ask again: %s", a.name, err)
	}
}

// envelopeFor makes the envelope with an agent's task. A long task is an object in the outbox.
func (s *coordinator) envelopeFor(a *member) (*envelope, error) {
	if a.task == nil {
		return &envelope{Op: opWait, Receipt: a.receipt}, nil
	}
	if a.envelope == nil {
		blob, err := s.Format.EncodeTask(*a.task)
		if err != nil {
			return nil, err
		}
		e := &envelope{Op: opTask, Key: keyOfTask(*a.task), blob: blob}
		if len(blob) > chunk {
			e.Object, e.blob = a.outbox.put(blob), nil
		}
		a.envelope = e
	}
	a.envelope.Receipt = a.receipt
	return a.envelope, nil
}

// publish sends an envelope to the process of an agent.
func (s *coordinator) publish(a *member, e *envelope) error {
	e.Run, e.Agent, e.Instance, e.Protocol = s.Format.Run, a.name, a.instance, protocol.Version
	m, err := e.seal(instanceOf(subject(s.Format.Run, "to", a.name), a.instance), s.key)
	if err != nil {
		return err
	}
	return s.nc.PublishMsg(m)
}

// tick removes revoked agents, and reports. A connection that is closed for good ends the run's server.
func (s *coordinator) tick(ctx context.Context) error {
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
			if a := s.members[name]; !a.revoked && all[name].Revoked {
				if err := s.leave(ctx, a); err != nil {
					return err
				}
			}
		}
	}
	dropped := s.inbox.takeDropped()
	for _, name := range slices.Sorted(maps.Keys(dropped)) {
		s.status.Refused[reasonFlood] += dropped[name]
		s.warnOf(name, "%d messages of agent %q are dropped: it sends more than %d at a time", dropped[name], name,
			maxQueued)
	}
	s.Tick(s.status)
	return nil
}

// leave removes an agent for good.
func (s *coordinator) leave(ctx context.Context, a *member) error {
	_, sends, err := s.Journal.Do(Leave, a.number)
	if err != nil {
		return err
	}
	a.joined, a.ended, a.revoked, a.task, a.envelope = false, true, true, nil, nil
	s.Warn("agent %q is revoked and leaves the run", a.name)
	s.deliver(ctx, sends) // it may have closed a round
	return s.endIfStuck()
}

// farewellTimeout is how long a server that is done waits for the agents to hear it, and for agents that may be about
// to come back.
const farewellTimeout = 3 * time.Second

// finish has every agent stop, and waits until they have said goodbye.
func (s *coordinator) finish(ctx context.Context) error {
	s.Tick(s.status)
	defer s.Tick(s.status) // with the agents' last envelopes
	for _, a := range s.members {
		if a.task == nil || a.task.Kind != protocol.Stop {
			a.task, a.envelope = &protocol.Task{Kind: protocol.Stop, Version: s.Journal.Version()}, nil
			s.send(ctx, a)
		}
	}
	end := time.After(farewellTimeout)
	for {
		if !slices.ContainsFunc(slices.Collect(maps.Values(s.members)), func(a *member) bool { return !a.ended }) {
			return s.nc.FlushTimeout(farewellTimeout)
		}
		select {
		case <-ctx.Done():
			return nil // the run is done all the same
		case <-end:
			return s.nc.FlushTimeout(farewellTimeout)
		case p := <-s.probes:
			if err := s.endProbe(p); err != nil {
				return err
			}
		case m := <-s.inbox.queue:
			name, update := s.isUpdate(m)
			if update { // it comes too late
				continue
			}
			if err := s.handleRequest(ctx, m, name); err != nil {
				return err
			}
		}
	}
}
