package link

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/posttrain/posttrain/federated"
	"github.com/posttrain/posttrain/federated/protocol"
)

// Worker does an agent's tasks: a protocol.Agent with the identity of its workload.
type Worker interface {
	Identity() protocol.Identity
	Do(ctx context.Context, t protocol.Task) (protocol.Update, error)
	State() (protocol.State, error)
	Restore(protocol.State) error
}

// secured is a worker that makes secure sums, see [protocol.Agent.Secure].
type secured interface {
	Secure(secret []byte, run string)
}

// AgentOptions say what an agent's process does.
type AgentOptions struct {
	Server      string       // URL
	Run         string       // id; "": that of the credentials
	Name        string       // of the agent
	Credentials *Credentials // nil: none, for a loopback address
	Dir         string       // of the agent's memory

	// Build makes the worker of the agent with that number from the run's configuration; d is the length of θ.
	Build func(number int, config string) (w Worker, d int, err error)
	Said  func(format string, args ...any) // one line for each update
	Warn  func(format string, args ...any)

	pace pace // none: usual
}

// working is an agent's process. One goroutine owns it, and one at a time works for it.
type working struct {
	AgentOptions
	instance string
	key      nkeys.KeyPair // nil: letters are not signed
	meter    meter
	nc       *nats.Conn
	update   offer // of the update that is sent
	letters  chan *nats.Msg
	wake     chan struct{} // the connection is back
	over     chan error    // the connection is closed for good

	mu   sync.Mutex
	lost chan struct{} // is closed when the connection breaks, and then made anew

	config *runConfig // nil: the server has not said hello
	worker Worker
	form   Form
	memory *memory
	joined bool

	doing    taskKey   // what the job is about
	whole    bool      // it failed: the next join asks for all of it
	job      *job      // nil: idle
	sent     time.Time // the update of doing; zero: not yet
	asked    int       // questions in a row without an answer
	refused  int       // updates in a row
	stumbled int       // transfers in a row that failed
	failed   taskKey   // that could not be done
}

// job is work under way: a task, or the sending of its update.
type job struct {
	stop context.CancelFunc
	done chan error
}

// RunAgent takes part in a run until the server stops it, for good or for a line that says why.
func RunAgent(ctx context.Context, o AgentOptions) error {
	if err := CheckName(o.Name); err != nil {
		return err
	}
	if o.pace == (pace{}) {
		o.pace = usual
	}
	if c := o.Credentials; c != nil && c.Agent != o.Name {
		return fmt.Errorf("credentials of agent %q, want those of agent %q", c.Agent, o.Name)
	}
	if err := checkURL(o.Server, o.Credentials != nil); err != nil {
		return err
	}
	a := &working{AgentOptions: o, instance: NewRunID(), letters: make(chan *nats.Msg, 64),
		wake: make(chan struct{}, 1), over: make(chan error, 1), lost: make(chan struct{})}
	defer a.close()
	if err := a.connect(ctx); err != nil {
		return err
	}
	return a.loop(ctx)
}

func (a *working) close() {
	if a.job != nil {
		a.job.stop()
		<-a.job.done
	}
	if a.nc != nil {
		a.nc.Close()
	}
	if a.memory != nil {
		a.memory.close()
	}
}

// connect tries until there is a connection to a run, or an error that trying again does not mend. Credentials name the
// run: only agents without any ask which one is served here.
func (a *working) connect(ctx context.Context) error {
	more, err := a.connectOptions()
	if err != nil {
		return err
	}
	for attempt := 0; ; attempt++ {
		if a.nc == nil {
			a.nc, err = nats.Connect(a.Server, options(a.Name, more...)...)
		}
		switch {
		case err == nil && a.Run == "":
			if m, err := a.nc.Request(openRun, nil, askSoon); err == nil && CheckName(string(m.Data)) == nil {
				a.Run = string(m.Data)
				return a.listen()
			}
		case err == nil:
			return a.listen()
		default:
			line, final := a.explain(err)
			if final {
				return line
			}
			if a.nc = nil; attempt%10 == 0 {
				a.Warn("%s; trying again", line)
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(backoff(attempt)):
		}
	}
}

func (a *working) explain(err error) (line error, final bool) {
	if a.Credentials == nil {
		return explain(err, a.Server, "")
	}
	return explain(err, a.Server, a.Name)
}

func (a *working) connectOptions() (more []nats.Option, err error) {
	more = []nats.Option{nats.SetCustomDialer(&a.meter), nats.CustomInboxPrefix(inboxPrefix(a.Name)),
		nats.ReconnectHandler(func(*nats.Conn) {
			select {
			case a.wake <- struct{}{}:
			default:
			}
		}),
		nats.DisconnectErrHandler(func(*nats.Conn, error) { a.disconnected() }),
		nats.ClosedHandler(func(nc *nats.Conn) { a.over <- nc.LastError() }),
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
	return append(more, nats.Secure(trusting(c.CA)), proof), err
}

// disconnected ends the transfers of a broken connection: nobody acknowledges them any more.
func (a *working) disconnected() {
	a.mu.Lock()
	defer a.mu.Unlock()
	close(a.lost)
	a.lost = make(chan struct{})
}

// transfer bounds the transfer of size bytes by time, and by the connection's life.
func (a *working) transfer(ctx context.Context, size int) (context.Context, context.CancelFunc) {
	ctx, stop := context.WithTimeout(ctx, patience(size))
	a.mu.Lock()
	lost := a.lost
	a.mu.Unlock()
	go func() {
		select {
		case <-lost:
			stop()
		case <-ctx.Done():
		}
	}()
	return ctx, stop
}

// listen subscribes to the agent's letters.
func (a *working) listen() (err error) {
	for _, instance := range []string{a.instance, everyInstance} {
		_, err = a.nc.ChanSubscribe(instanceOf(subject(a.Run, "to", a.Name), instance), a.letters)
		if err != nil {
			return err
		}
	}
	_, err = a.nc.Subscribe(instanceOf(subject(a.Run, "get", a.Name), a.instance), a.update.answer)
	return err
}

// askSoon is how soon an agent asks again without an answer at first.
const askSoon = 250 * time.Millisecond

// pace is how soon an agent asks again after it has sent an update, and while it works or waits. An update is sent
// again where the server has not heard of it for resend. All of it is for messages that were lost.
type pace struct{ sent, late, resend time.Duration }

var usual = pace{3 * time.Second, 15 * time.Second, 2 * time.Second}

func (a *working) loop(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var done chan error
		if a.job != nil {
			done = a.job.done
		}
		select {
		case <-ctx.Done():
			a.ask(opBye)
			a.nc.FlushTimeout(time.Second)
			return ctx.Err()
		case err := <-a.over:
			line, _ := a.explain(errors.Join(err, nats.ErrConnectionClosed))
			return line
		case m := <-a.letters:
			soon, stopped, err := a.read(ctx, m)
			if err != nil || stopped {
				return err
			}
			timer.Reset(soon)
		case err := <-done:
			soon, err := a.finished(ctx, err)
			if err != nil {
				return err
			}
			timer.Reset(soon)
		case <-a.wake:
			timer.Reset(0)
		case <-timer.C:
			timer.Reset(a.askAgain())
		}
	}
}

// askAgain asks what comes next: the configuration, a place in the run, or the task. It returns when to ask again.
func (a *working) askAgain() time.Duration {
	switch {
	case a.config == nil:
		a.ask(opHello)
	case !a.joined:
		a.ask(opJoin)
	default:
		a.ask(opAsk)
	}
	a.asked++
	return min(askSoon<<min(a.asked, 10), a.pace.late)
}

// ask sends a letter. One that is lost is sent again by the timer.
func (a *working) ask(what op) {
	l := &letter{Op: what}
	if what == opJoin {
		identity := a.worker.Identity()
		l.Identity, l.Whole = &identity, a.whole
	}
	m, err := a.sealed(l, subject(a.Run, "ask", a.Name))
	if err == nil {
		err = a.nc.PublishMsg(m)
	}
	if err != nil && !errors.Is(err, nats.ErrReconnectBufExceeded) && !errors.Is(err, nats.ErrConnectionReconnecting) {
		a.Warn("%s", err)
	}
}

func (a *working) sealed(l *letter, subject string) (*nats.Msg, error) {
	traffic := a.meter.traffic()
	l.Run, l.Agent, l.Instance, l.Protocol, l.Socket = a.Run, a.Name, a.instance, protocol.Version, &traffic
	return l.seal(subject, a.key)
}

// read handles a letter of the server. It returns when to ask again, and whether the run is over.
func (a *working) read(ctx context.Context, m *nats.Msg) (soon time.Duration, stopped bool, err error) {
	public := ""
	if a.Credentials != nil {
		public = a.Credentials.Key
	}
	l, err := unseal(m, a.Run, public)
	if err != nil {
		a.Warn("a letter of the server is dropped: %s", err)
		return askSoon, false, nil
	}
	switch {
	case l.Op == opAgain:
		return 0, false, nil
	case l.Instance != a.instance:
		return askSoon, false, nil
	case l.Op == opRefuse:
		return 0, false, fmt.Errorf("the server refuses agent %q: %s", a.Name, l.Reason)
	case l.Op == opConfig:
		return askSoon, false, a.configure(l.Config)
	case a.worker == nil:
		return askSoon, false, nil // the answer to an older question
	}
	a.joined, a.whole, a.asked = true, false, 0
	resend, err := a.settle(l.Receipt)
	switch {
	case err != nil:
		return 0, false, err
	case resend && a.job == nil && (l.Op != opTask || l.Key == a.doing):
		a.start(ctx, a.send)
		return a.pace.late, false, nil
	case l.Op != opTask:
		return a.pace.late, false, nil
	}
	if l.Key.Kind == protocol.Stop {
		a.ask(opBye)
		a.nc.FlushTimeout(time.Second) // the run is done, whether or not the server hears the goodbye
		return 0, true, nil
	}
	a.take(ctx, l)
	return a.pace.late, false, nil
}

// configure builds the worker at the first hello. At later ones, after the server has restarted, it only joins again.
func (a *working) configure(c *runConfig) error {
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

func (a *working) build(c *runConfig) error {
	worker, d, err := a.Build(c.Number, c.Text)
	if err != nil {
		return err
	}
	a.form = Form{Run: a.Run, Type: Type(c.Type), D: d}
	if err := a.form.Check(); err != nil {
		return err
	}
	memory, damaged, err := openMemory(a.Dir, a.Run, a.Name)
	if err != nil {
		return err
	}
	if damaged != nil {
		a.Warn("%s", damaged)
	}
	a.worker, a.memory, a.config = worker, memory, c
	if w, ok := worker.(secured); ok {
		secret, err := memory.secret()
		if err != nil {
			return err
		}
		w.Secure(secret, a.Run)
	}
	state, ok, err := memory.learned()
	if err == nil && ok {
		err = worker.Restore(state)
	}
	return err
}

// settle looks at what became of the update that was sent last. resend says that it arrived damaged.
func (a *working) settle(r *receipt) (resend bool, err error) {
	key, again, update := a.memory.pending()
	unread := r != nil && r.Reason == reasonDamaged && r.Key == taskKey{} // its letter too was damaged
	if r == nil || update == nil || !unread && (r.Key != key || r.Attempt != again) {
		return false, nil
	}
	if a.doing == key {
		a.cancel() // it has been sent
	}
	if r.Reason == federated.ReasonDuplicate { // the server had it before it was killed
		a.memory.settle()
		return false, nil
	}
	if r.Accepted {
		a.refused = 0
		a.memory.settle()
		a.accepted(r)
		return false, nil
	}
	a.Warn("%s %s refused (%s): %s", a.Name, key, r.Reason, r.Detail)
	if r.Reason == reasonDamaged {
		return true, a.memory.retry()
	}
	a.refused++
	a.memory.settle()
	return false, nil
}

func (a *working) accepted(r *receipt) {
	shortened := ""
	if r.Bound > 0 {
		shortened = fmt.Sprintf(", shortened to norm %.4g", r.Bound)
	}
	a.Said("%s %s accepted%s: version %d", a.Name, r.Key, shortened, r.Version)
}

// take starts the work for a task, or sends its update again.
func (a *working) take(ctx context.Context, l *letter) {
	key, _, update := a.memory.pending()
	have := update != nil && key == l.Key
	switch {
	case a.job != nil && a.doing == l.Key:
		return
	case have && time.Since(a.sent) < a.pace.resend:
		return // it is on its way
	}
	a.cancel()
	a.doing, a.sent = l.Key, time.Time{}
	a.start(ctx, func(ctx context.Context) error {
		if have {
			return a.send(ctx)
		}
		return a.work(ctx, l)
	})
}

// cancel ends the work for a task that is outdated.
func (a *working) cancel() {
	if a.job == nil {
		return
	}
	a.job.stop()
	<-a.job.done
	a.job = nil
}

func (a *working) start(ctx context.Context, do func(context.Context) error) {
	ctx, stop := context.WithCancel(ctx)
	a.job = &job{stop, make(chan error, 1)}
	done := a.job.done
	go func() { done <- do(ctx) }()
}

// finished looks at a job's end, and returns when to ask again. An agent that cannot do a task joins again once, which
// brings a complete one.
func (a *working) finished(ctx context.Context, err error) (soon time.Duration, _ error) {
	a.job.stop()
	a.job = nil
	switch {
	case ctx.Err() != nil:
		return a.pace.late, nil
	case errors.Is(err, errTask) && a.failed != a.doing:
		a.failed = a.doing
		a.Warn("%s; joining again", err)
		a.joined, a.whole = false, true
		return 0, nil
	case errors.Is(err, errTransport):
		a.stumbled++
		a.Warn("%s; asking again", err)
		return backoff(a.stumbled), nil
	case err != nil:
		return 0, err
	}
	a.sent, a.stumbled = time.Now(), 0
	return a.pace.sent, nil
}

// Errors of a job that may pass.
var (
	errTask      = errors.New("task failed")
	errTransport = errors.New("not transferred")
)

// work does a task, keeps its update on the disk, and sends it.
func (a *working) work(ctx context.Context, l *letter) error {
	if a.refused > 0 { // the same numbers would be refused at once again
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(backoff(a.refused)):
		}
	}
	t, err := a.fetch(ctx, l)
	if err != nil {
		return err
	}
	u, err := a.worker.Do(ctx, t)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errTask, err)
	}
	blob, err := a.form.EncodeUpdate(u)
	if err != nil {
		return err
	}
	state, err := a.worker.State()
	if err != nil {
		return err
	}
	if err := a.memory.keep(state, l.Key, blob); err != nil {
		return err
	}
	return a.send(ctx)
}

// fetch reads a task.
func (a *working) fetch(ctx context.Context, l *letter) (t protocol.Task, err error) {
	blob := l.blob
	if l.Object != nil {
		limited, stop := a.transfer(ctx, l.Object.Size)
		defer stop()
		blob, err = pull(limited, a.nc, subject(a.Run, "get", a.Name), l.Object, a.form.Most())
		if err != nil {
			return t, fmt.Errorf("task %s %w: %w", l.Key, errTransport, err)
		}
	}
	if t, err = a.form.DecodeTask(blob); err != nil {
		return t, fmt.Errorf("task %s %w: %w", l.Key, errTransport, err)
	}
	return t, nil
}

// send sends the update in memory. A long one is offered, and the server pulls it.
func (a *working) send(ctx context.Context) error {
	key, again, blob := a.memory.pending()
	if blob == nil || ctx.Err() != nil {
		return ctx.Err() // the server has it by now, or this process ends
	}
	l := &letter{Op: opUpdate, Key: key, Attempt: again, blob: blob}
	if len(blob) > chunk {
		l.Object, l.blob = a.update.put(blob), nil
	}
	m, err := a.sealed(l, subject(a.Run, "up", a.Name))
	if err == nil {
		err = a.nc.PublishMsg(m)
	}
	if err != nil {
		return fmt.Errorf("update %s %w: %w", l.Key, errTransport, err)
	}
	return nil
}
