package link

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/posttrain/posttrain/federated"
	"github.com/posttrain/posttrain/federated/protocol"
)

// Worker does an agent's tasks: a [protocol.Agent].
type Worker interface {
	Identity() protocol.Identity
	Secure(secret []byte, run string)
	Do(ctx context.Context, t protocol.Task) (protocol.Update, error)
	State() (protocol.State, error)
	Restore(protocol.State) error
}

// AgentOptions say what an agent's process does.
type AgentOptions struct {
	Server      string       // URL
	Run         string       // id; "": the credentials' run
	Name        string       // of the agent
	Credentials *Credentials // nil: none, for a loopback address
	Dir         string       // of the agent's spool

	// Build makes the worker of the agent with that number from the run's configuration; d is the length of θ.
	Build func(number int, config string) (w Worker, d int, err error)
	Say   func(format string, args ...any) // one line for each update
	Warn  func(format string, args ...any)

	late time.Duration // askLate, but in tests
}

// client is an agent's process. One goroutine owns it, and one at a time works for it.
type client struct {
	AgentOptions
	instance    string
	key         nkeys.KeyPair // nil: envelopes are not signed
	nc          *nats.Conn
	outbox      outbox // the update that is sent, where it is long
	messages    chan *nats.Msg
	reconnected chan struct{} // the connection is back
	closed      chan error    // the connection is closed for good

	config *runConfig // nil: the server has not said hello
	worker Worker
	format Format
	spool  *spool
	joined bool

	current    taskKey   // of the job
	whole      bool      // a task failed: the next join asks for all of it
	job        *job      // nil: idle
	sent       time.Time // when the update of current was; zero: not yet
	unanswered int       // questions in a row without an answer
	failed     taskKey   // of the last task that could not be done
}

// job is work under way: a task, or the sending of its update.
type job struct {
	stop context.CancelFunc
	done chan error
}

// How long an agent waits for an answer before it asks again: at first, after a transfer that failed, and at most. It
// asks that often, too, while it works or waits. All of it is for messages that were lost. An update is not sent again
// within askNext.
const (
	askSoon = 250 * time.Millisecond
	askNext = 2 * time.Second
	askLate = 10 * time.Second
)

// RunAgent takes part in a run until the server stops it, for good or for a line that says why.
func RunAgent(ctx context.Context, o AgentOptions) error {
	if err := CheckName(o.Name); err != nil {
		return err
	}
	if c := o.Credentials; c != nil && c.Agent != o.Name {
		return fmt.Errorf("credentials of agent %q, want those of agent %q", c.Agent, o.Name)
	}
	if err := checkURL(o.Server, o.Credentials != nil); err != nil {
		return err
	}
	o.late = cmp.Or(o.late, askLate)
	a := &client{AgentOptions: o, instance: NewRunID(), messages: make(chan *nats.Msg, 64),
		reconnected: make(chan struct{}, 1), closed: make(chan error, 1)}
	defer a.close()
	if err := a.connect(ctx); err != nil {
		return err
	}
	return a.loop(ctx)
}

func (a *client) close() {
	a.cancel()
	if a.nc != nil {
		a.nc.Close()
	}
	if a.spool != nil {
		a.spool.lock.Close()
	}
}

// connect tries until there is a connection to a run, or an error that trying again does not mend. Credentials name the
// run: only agents without any ask which one is served here.
func (a *client) connect(ctx context.Context) error {
	more, err := a.connectOptions()
	if err != nil {
		return err
	}
	for attempt := 0; ; attempt++ {
		if there, err := a.tryConnect(more, attempt); there || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(backoff(attempt)):
		}
	}
}

// tryConnect tries once, and subscribes to the server's envelopes and to the requests for the update.
func (a *client) tryConnect(more []nats.Option, attempt int) (there bool, err error) {
	if a.nc == nil {
		nc, err := nats.Connect(a.Server, options(a.Name, more...)...)
		if err != nil {
			line, final := a.explain(err)
			if final {
				return false, line
			}
			if attempt%10 == 0 {
				a.Warn("%s; trying again", line)
			}
			return false, nil
		}
		a.nc = nc
	}
	if a.Run == "" {
		m, err := a.nc.Request(openRun, nil, askSoon)
		if err != nil || CheckName(string(m.Data)) != nil {
			return false, nil
		}
		a.Run = string(m.Data)
	}
	_, err = a.nc.ChanSubscribe(instanceOf(subject(a.Run, "to", a.Name), a.instance), a.messages)
	if err == nil {
		_, err = a.nc.Subscribe(instanceOf(subject(a.Run, "get", a.Name), a.instance), a.outbox.serveChunk)
	}
	return err == nil, err
}

func (a *client) explain(err error) (line error, final bool) {
	if a.Credentials == nil {
		return explain(err, a.Server, "")
	}
	return explain(err, a.Server, a.Name)
}

func (a *client) connectOptions() (more []nats.Option, err error) {
	more = []nats.Option{nats.CustomInboxPrefix(inboxPrefix(a.Name)),
		nats.ReconnectHandler(func(*nats.Conn) {
			select {
			case a.reconnected <- struct{}{}:
			default:
			}
		}),
		nats.ClosedHandler(func(nc *nats.Conn) { a.closed <- nc.LastError() }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { a.Warn("%s", err) }),
	}
	c := a.Credentials
	if c == nil {
		return more, nil
	}
	a.Run = c.Run
	if a.key, err = nkeys.FromSeed([]byte(c.Seed)); err != nil {
		return nil, errors.New("credentials: the seed is not that of an NKey")
	}
	proof, err := withKey(a.key)
	return append(more, nats.Secure(clientTLS(c.CA)), proof), err
}

func (a *client) loop(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var done chan error
		if a.job != nil {
			done = a.job.done
		}
		select {
		case <-ctx.Done():
			a.bye()
			return ctx.Err()
		case err := <-a.closed:
			line, _ := a.explain(errors.Join(err, nats.ErrConnectionClosed))
			return line
		case m := <-a.messages:
			soon, stopped, err := a.handle(ctx, m)
			if err != nil || stopped {
				return err
			}
			timer.Reset(soon)
		case err := <-done:
			soon, err := a.endJob(ctx, err)
			if err != nil {
				return err
			}
			timer.Reset(soon)
		case <-a.reconnected:
			timer.Reset(0)
		case <-timer.C:
			timer.Reset(a.askAgain())
		}
	}
}

// askAgain asks what comes next: the configuration, a place in the run, or the task. It returns when to ask again.
func (a *client) askAgain() time.Duration {
	switch {
	case a.config == nil:
		a.ask(opHello)
	case !a.joined:
		a.ask(opJoin)
	default:
		a.ask(opAsk)
	}
	a.unanswered++
	return min(askSoon<<min(a.unanswered, 10), a.late)
}

// ask sends an envelope. One that is lost is sent again by the timer.
func (a *client) ask(what op) {
	e := &envelope{Op: what}
	if what == opJoin {
		identity := a.worker.Identity()
		e.Identity, e.Whole = &identity, a.whole
	}
	err := a.publish(e, "ask")
	if err != nil && !errors.Is(err, nats.ErrReconnectBufExceeded) && !errors.Is(err, nats.ErrConnectionReconnecting) {
		a.Warn("%s", err)
	}
}

func (a *client) bye() {
	a.ask(opBye)
	a.nc.FlushTimeout(time.Second) // the agent ends, whether or not the server hears the goodbye
}

func (a *client) publish(e *envelope, what string) error {
	e.Run, e.Agent, e.Instance, e.Protocol = a.Run, a.Name, a.instance, protocol.Version
	m, err := e.seal(subject(a.Run, what, a.Name), a.key)
	if err == nil {
		err = a.nc.PublishMsg(m)
	}
	return err
}

// handle opens an envelope of the server. It returns when to ask again, and whether the run is over.
func (a *client) handle(ctx context.Context, m *nats.Msg) (soon time.Duration, stopped bool, err error) {
	public := ""
	if a.Credentials != nil {
		public = a.Credentials.Key
	}
	e, err := unseal(m, a.Run, public)
	if err != nil {
		a.Warn("a message of the server is dropped: %s", err)
		return askSoon, false, nil
	}
	switch {
	case e.Instance != a.instance:
		return askSoon, false, nil
	case e.Op == opRefuse:
		return 0, false, fmt.Errorf("the server refuses agent %q: %s", a.Name, e.Reason)
	case e.Op == opConfig:
		return askSoon, false, a.configure(e.Config)
	case a.worker == nil:
		return askSoon, false, nil // the answer to an older question
	}
	a.joined, a.whole, a.unanswered = true, false, 0
	resend := a.handleReceipt(e.Receipt)
	switch {
	case resend && a.job == nil && (e.Op != opTask || e.Key == a.current):
		a.startJob(ctx, a.send)
	case e.Op == opTask && e.Key.Kind == protocol.Stop:
		a.bye()
		return 0, true, nil
	case e.Op == opTask:
		a.startTask(ctx, e)
	}
	return a.late, false, nil
}

// configure builds the worker at the first hello. At later ones, after the server has restarted, it only joins again.
func (a *client) configure(c *runConfig) error {
	if c == nil {
		return errors.New("the server's configuration is empty")
	}
	if a.config != nil && *a.config != *c {
		return errors.New("the server has come back with another configuration")
	}
	if a.config == nil {
		if err := a.build(c); err != nil {
			return err
		}
	}
	a.joined, a.sent = false, time.Time{} // the server has started again: what was sent may be lost
	a.ask(opJoin)
	return nil
}

func (a *client) build(c *runConfig) error {
	worker, d, err := a.Build(c.Number, c.Text)
	if err != nil {
		return err
	}
	a.format = Format{Run: a.Run, Type: Type(c.Type), D: d}
	if err := a.format.Check(); err != nil {
		return err
	}
	spool, damaged, err := openSpool(a.Dir, a.Run, a.Name)
	if err != nil {
		return err
	}
	if damaged != nil {
		a.Warn("%s", damaged)
	}
	a.worker, a.spool, a.config = worker, spool, c
	secret, err := spool.secret()
	if err != nil {
		return err
	}
	worker.Secure(secret, a.Run)
	if spool.state == nil {
		return nil
	}
	state, err := DecodeState(a.Run, spool.state)
	if err != nil {
		return err
	}
	return worker.Restore(state)
}

// handleReceipt looks at what became of the update that was sent last. resend says that it arrived damaged.
func (a *client) handleReceipt(r *receipt) (resend bool) {
	key, update := a.spool.pending()
	if r == nil || update == nil || r.Key != key && r.Key != (taskKey{}) { // no key: its envelope too was damaged
		return false
	}
	if a.current == key {
		a.cancel() // it has been sent
	}
	switch {
	case r.Accepted:
		shortened := ""
		if r.Bound > 0 {
			shortened = fmt.Sprintf(", shortened to norm %.4g", r.Bound)
		}
		a.Say("%s %s accepted%s: version %d", a.Name, r.Key, shortened, r.Version)
	case r.Reason != federated.ReasonDuplicate: // the server had that before it was killed
		a.Warn("%s %s refused (%s): %s", a.Name, key, r.Reason, r.Detail)
	}
	if r.Reason == reasonDamaged {
		return true
	}
	a.spool.clear()
	return false
}

// startTask starts the work for a task, or sends its update again.
func (a *client) startTask(ctx context.Context, e *envelope) {
	key, update := a.spool.pending()
	have := update != nil && key == e.Key
	if a.job != nil && a.current == e.Key || have && time.Since(a.sent) < askNext {
		return // it is under way
	}
	a.cancel()
	a.current, a.sent = e.Key, time.Time{}
	if have {
		a.startJob(ctx, a.send)
		return
	}
	a.startJob(ctx, func(ctx context.Context) error { return a.work(ctx, e) })
}

// cancel ends the work for a task that is outdated.
func (a *client) cancel() {
	if a.job == nil {
		return
	}
	a.job.stop()
	<-a.job.done
	a.job = nil
}

func (a *client) startJob(ctx context.Context, do func(context.Context) error) {
	ctx, stop := context.WithCancel(ctx)
	a.job = &job{stop, make(chan error, 1)}
	done := a.job.done
	go func() { done <- do(ctx) }()
}

// endJob looks at a job's end, and returns when to ask again. An agent that cannot do a task joins again once, which
// brings a complete one.
func (a *client) endJob(ctx context.Context, err error) (soon time.Duration, _ error) {
	a.job.stop()
	a.job = nil
	switch {
	case ctx.Err() != nil:
		return a.late, nil
	case errors.Is(err, errTask) && a.failed != a.current:
		a.failed = a.current
		a.Warn("%s; joining again", err)
		a.joined, a.whole = false, true
		return 0, nil
	case errors.Is(err, errTransport):
		a.Warn("%s; asking again", err)
		return askNext, nil
	case err != nil:
		return 0, err
	}
	a.sent = time.Now()
	return a.late, nil
}

// Errors of a job that may pass.
var (
	errTask      = errors.New("task failed")
	errTransport = errors.New("not transferred")
)

// work does a task, keeps its update on the disk, and sends it.
func (a *client) work(ctx context.Context, e *envelope) (err error) {
	blob := e.blob
	if e.Object != nil {
		blob, err = pull(ctx, a.nc, subject(a.Run, "get", a.Name), e.Object, a.format.MaxBytes())
	}
	var t protocol.Task
	if err == nil {
		t, err = a.format.DecodeTask(blob)
	}
	if err != nil {
		return fmt.Errorf("task %s %w: %w", e.Key, errTransport, err)
	}
	u, err := a.worker.Do(ctx, t)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errTask, err)
	}
	if blob, err = a.format.EncodeUpdate(u); err != nil {
		return err
	}
	state, err := a.worker.State()
	if err != nil {
		return err
	}
	if err := a.spool.store(state, e.Key, blob); err != nil {
		return err
	}
	return a.send(ctx)
}

// send sends the update in the spool. The server pulls a long one from the outbox.
func (a *client) send(ctx context.Context) error {
	key, blob := a.spool.pending()
	if blob == nil || ctx.Err() != nil {
		return ctx.Err() // the server has it by now, or this process ends
	}
	e := &envelope{Op: opUpdate, Key: key, blob: blob}
	if len(blob) > chunk {
		e.Object, e.blob = a.outbox.put(blob), nil
	}
	if err := a.publish(e, "up"); err != nil {
		return fmt.Errorf("update %s %w: %w", key, errTransport, err)
	}
	return nil
}
