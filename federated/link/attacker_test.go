package link

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"net"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/internal/testkit/need"
)

// rawAgent is an agent's place in a run without the agent's program.
type rawAgent struct {
	*world
	name    string
	nc      *nats.Conn
	key     nkeys.KeyPair // nil: a run without keys
	public  string        // of the server
	answers *nats.Subscription
	denied  chan error // by the broker
}

// rawAgent connects as an agent.
func (w *world) rawAgent(o AgentOptions, more ...nats.Option) *rawAgent {
	w.t.Helper()
	h := &rawAgent{world: w, name: o.Name, denied: make(chan error, 64)}
	more = append(more, nats.CustomInboxPrefix(inboxPrefix(o.Name)),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { h.denied <- err }))
	if c := o.Credentials; c != nil {
		h.key, h.public = expect.Must(nkeys.FromSeed([]byte(c.Seed)))(w.t), c.Key
		more = append([]nats.Option{nats.Secure(clientTLS(c.CA)), expect.Must(withKey(h.key))(w.t)}, more...)
	}
	h.nc = expect.Must(nats.Connect(o.Server, more...))(w.t)
	w.t.Cleanup(h.nc.Close)
	h.answers = expect.Must(h.nc.SubscribeSync(subject(w.run, "to", h.name) + ".>"))(w.t)
	return h
}

// seal makes an envelope of the agent.
func (h *rawAgent) seal(what string, e envelope) *nats.Msg {
	h.t.Helper()
	e.Run, e.Agent = h.run, h.name
	if e.Instance == "" {
		e.Instance = "x"
	}
	if e.Protocol == 0 {
		e.Protocol = protocol.Version
	}
	return expect.Must(e.seal(subject(h.run, what, h.name), h.key))(h.t)
}

func (h *rawAgent) send(what string, e envelope) {
	h.t.Helper()
	expect.OK(h.t, h.nc.PublishMsg(h.seal(what, e)))
}

// answer is the server's next envelope.
func (h *rawAgent) answer() *envelope {
	h.t.Helper()
	ctx, stop := wholeTest(h.t)
	defer stop()
	m := expect.Must(h.answers.NextMsgWithContext(ctx))(h.t)
	return expect.Must(unseal(m, h.run, h.public))(h.t)
}

func (h *rawAgent) ask(e envelope) *envelope {
	h.t.Helper()
	h.send("ask", e)
	return h.answer()
}

func (h *rawAgent) identity() *protocol.Identity {
	i := expect.Must(newQuad(h.d, 0))(h.t).Workload.Identity()
	return &i
}

// join takes the agent's place once the server listens, and returns its task.
func (h *rawAgent) join() *envelope {
	h.t.Helper()
	var e *envelope
	waitFor(h.t, "the server", func() bool {
		h.send("ask", envelope{Op: opHello})
		h.send("ask", envelope{Op: opJoin, Identity: h.identity()})
		for {
			m, err := h.answers.NextMsg(250 * time.Millisecond)
			if err != nil {
				return false // as the program would, it asks again
			}
			if e = expect.Must(unseal(m, h.run, h.public))(h.t); e.Op != opConfig {
				return true
			}
		}
	})
	return e
}

// attacker has the credentials of agent mallory, number 1, in a run of fedpg with alice, and mallory's first task.
type attacker struct {
	*rawAgent
	p       *cluster
	dir     string
	options AgentOptions // of mallory
	alice   AgentOptions
	spy     *nats.Conn // sees all that travels
	task    *envelope
	stop    context.CancelFunc
	served  chan error
}

func newAttacker(t *testing.T) *attacker {
	t.Helper()
	p := newCluster(t, protocol.FedPG)
	p.o.Agents, p.o.Rounds = 2, new(3)
	w := newWorld(t, size, 0, true)
	p.format.Run = w.run
	a := &attacker{p: p, dir: newDriver(t, 0).dir}
	w.most, w.numbers = 2, map[string]int{"alice": 0, "mallory": 1}
	a.alice, a.options = w.agent("alice"), w.agent("mallory")
	for _, o := range []*AgentOptions{&a.alice, &a.options} {
		o.Build = func(number int, _ string) (Worker, int, error) { return p.agents[number], size, nil }
	}
	a.rawAgent = &rawAgent{world: w}
	a.start()
	a.rawAgent = w.rawAgent(a.options)
	a.task = a.join()
	return a
}

// start begins to serve, or begins again from the folder.
func (a *attacker) start() {
	a.t.Helper()
	folder := expect.Must(run.Open(a.dir))(a.t)
	a.journal = expect.Must(OpenJournal(folder, a.p.server(), JournalOptions{Format: a.p.format, Every: 2}))(a.t)
	a.spy = expect.Must(a.broker.connect())(a.t)
	ctx, stop := context.WithCancel(a.t.Context())
	served := make(chan error, 1)
	a.stop, a.served = stop, served
	go func() {
		defer folder.Close()
		defer a.spy.Close()
		served <- a.serve(ctx)
	}()
}

// restart ends the server and its broker, and starts both again. The enemy connects again.
func (a *attacker) restart() {
	a.t.Helper()
	a.stop()
	<-a.served
	address := strings.TrimPrefix(a.broker.URL(), "tls://")
	a.broker.Close()
	a.startBroker(address)
	a.start()
	a.nc.Close()
	a.rawAgent = a.world.rawAgent(a.options)
}

// finish ends the enemy's connection, has agents' programs take part to the end, and returns θ's hash.
func (a *attacker) finish(agents ...AgentOptions) string {
	a.t.Helper()
	a.nc.Close()
	ctx, stop := wholeTest(a.t)
	defer stop()
	ends := make(chan error, 3)
	for _, o := range agents {
		go func() { ends <- RunAgent(ctx, o) }()
	}
	go func() { ends <- <-a.served }()
	for range len(agents) + 1 {
		if err := <-ends; err != nil {
			a.t.Errorf("%v; %q", err, a.warnings())
			stop()
			a.stop()
		}
	}
	a.stop()
	return Hash(a.journal.server.Params())
}

// update is mallory's right answer to its first task.
func (a *attacker) update() protocol.Update {
	a.t.Helper()
	task := expect.Must(a.p.format.DecodeTask(a.task.blob))(a.t)
	return expect.Must(a.p.agents[1].Do(a.t.Context(), task))(a.t)
}

// sealUpdate makes the envelope of an update.
func (a *attacker) sealUpdate(u protocol.Update) *nats.Msg {
	a.t.Helper()
	return a.seal("up", a.envelope(u))
}

func (a *attacker) envelope(u protocol.Update) envelope {
	a.t.Helper()
	return envelope{Op: opUpdate, Key: keyOfUpdate(u), blob: expect.Must(a.p.format.EncodeUpdate(u))(a.t)}
}

// wantRefusal sends an update, and wants its refusal.
func (a *attacker) wantRefusal(reason string, change func(*protocol.Update)) {
	a.t.Helper()
	u := a.update()
	change(&u)
	a.nc.PublishMsg(a.sealUpdate(u))
	if r := a.answer().Receipt; r == nil || r.Accepted || r.Reason != reason {
		a.t.Errorf("%+v, want %s", r, reason)
	}
}

// events are the lines of the journal.
func (a *attacker) events() int {
	return bytes.Count(expect.Bytes(a.t, filepath.Join(a.dir, JournalName)), []byte("\n"))
}

// subjects are an agent's subjects.
func (a *attacker) subjects(agent string) (all []string) {
	for _, what := range []string{"up", "ask", "get", "to"} {
		all = append(all, subject(a.run, what, agent), subject(a.run, what, agent)+".x")
	}
	return append(all, inboxPrefix(agent)+".x")
}

// wantViolation waits for the broker's refusal.
func (a *attacker) wantViolation(what string) {
	a.t.Helper()
	a.nc.Flush()
	ctx, stop := wholeTest(a.t)
	defer stop()
	select {
	case err := <-a.denied:
		if !errors.Is(err, nats.ErrPermissionViolation) {
			a.t.Errorf("%s: %v", what, err)
		}
	case <-ctx.Done():
		a.t.Errorf("%s is allowed", what)
	}
}

// wantSilence wants nothing to travel on subjects of alice, who is not here.
func (a *attacker) wantSilence(act func()) {
	a.t.Helper()
	heard := expect.Must(a.spy.SubscribeSync("fed." + a.run + ".*.alice"))(a.t)
	more := expect.Must(a.spy.SubscribeSync("fed." + a.run + ".*.alice.>"))(a.t)
	a.spy.Flush()
	act()
	a.nc.Flush()
	a.ask(envelope{Op: opAsk}) // the server has read what came before
	for _, sub := range []*nats.Subscription{heard, more} {
		if m, err := sub.NextMsg(50 * time.Millisecond); err == nil {
			a.t.Errorf("%s: %q", m.Subject, m.Data)
		}
	}
}

// raw speaks NATS without a library, and returns what the broker says after some commands.
func (a *attacker) raw(connect string, write func(w *bufio.Writer)) string {
	a.t.Helper()
	conn := expect.Must(net.Dial("tcp", strings.TrimPrefix(a.broker.URL(), "tls://")))(a.t)
	defer conn.Close()
	info := expect.Must(bufio.NewReader(conn).ReadString('\n'))(a.t)
	_, nonce, _ := strings.Cut(info, `"nonce":"`)
	nonce, _, _ = strings.Cut(nonce, `"`)
	secure := tls.Client(conn, clientTLS(a.options.Credentials.CA))
	in, out := bufio.NewReader(secure), bufio.NewWriter(secure)
	sig := expect.Must(a.key.Sign([]byte(nonce)))(a.t)
	fmt.Fprintf(out, "CONNECT {\"nkey\":%q,\"sig\":%q,\"headers\":true%s}\r\n", expect.Must(a.key.PublicKey())(a.t),
		base64.RawURLEncoding.EncodeToString(sig), connect)
	write(out)
	fmt.Fprint(out, "PING\r\n")
	out.Flush() // an error: the broker has had enough
	for {
		line, err := in.ReadString('\n')
		if err != nil || strings.HasPrefix(line, "-ERR") || strings.HasPrefix(line, "PONG") {
			return line
		}
	}
}

// floodSize is the size of a flood: a million with POSTTRAIN_NEEDS=slow.
func floodSize(some int) int {
	if need.Required("slow") {
		return 1_000_000
	}
	return some
}

// flood sends envelopes of a kind, and wants alice to hear from the server meanwhile, few lines, and little memory.
func (a *attacker) flood(n int, next func(i int) *nats.Msg) {
	a.t.Helper()
	alice := a.world.rawAgent(a.alice)
	began, lines := time.Now(), len(a.warnings())
	for i := range n {
		expect.OK(a.t, a.nc.PublishMsg(next(i)))
		if i == n/2 {
			a.nc.Flush()
			alice.join()
			alice.nc.Close()
		}
	}
	a.nc.FlushTimeout(time.Minute)
	took := time.Since(began)
	said, most := len(a.warnings())-lines, 2*(burst+int(took.Seconds()+2))
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	a.t.Logf("%d messages in %v: %d lines, %d MB of memory from the system", n, took, said, m.Sys>>20)
	if said > most {
		a.t.Errorf("%d lines after %d messages in %v, want at most %d", said, n, took, most)
	}
}

// TestEnemy: with one agent's credentials, everything that NATS offers. Each attempt gets what the table of
// docs/federated.md says, and the run ends with the bits of a run without it; or, where the attempt is mallory's answer
// to the first task, without mallory in the first round.
func TestEnemy(t *testing.T) {
	text := expect.Read(t, "../../docs/federated.md")
	with, without := reference(t, nil), reference(t, func(u *protocol.Update) { u.Vectors[0][0] = math.NaN() })
	attempts := []struct {
		what, gets string
		end        string // θ's hash; "": mallory is gone
		do         func(a *attacker)
	}{
		{"subscribe to `>`, to others' subjects, to the system's",
			"a permissions violation", with, func(a *attacker) {
				for _, s := range append(a.subjects("alice"), ">", "fed.>", "fed.*.up.mallory", subject(a.run, "up", "*"),
					subject(a.run, "to", "alice")+".>", subject(a.run, "up", "mallory"), "$SYS.>", "$JS.>", "_INBOX.>") {
					a.nc.SubscribeSync(s)
					a.wantViolation(s)
					a.nc.QueueSubscribeSync(s, "q")
					a.wantViolation(s + " in a group")
				}
			}},
		{"publish as the server, or as another agent", "a permissions violation", with, func(a *attacker) {
			for _, s := range append(a.subjects("alice"), subject(a.run, "to", "mallory")+".x",
				subject(a.run, "get", "mallory")+".x", "_INBOX.x", "fed.x", openRun) {
				a.nc.Publish(s, []byte("{}"))
				a.wantViolation(s)
			}
		}},
		{"use JetStream, services, the system's requests",
			"a permissions violation; JetStream is off", with, func(a *attacker) {
				for _, s := range []string{"$JS.API.INFO", "$JS.API.STREAM.CREATE.x", "$SRV.PING", "$SYS.REQ.SERVER.PING",
					"$SYS.REQ.USER.INFO"} {
					a.nc.Publish(s, nil)
					a.wantViolation(s)
				}
				if a.broker.server.JetStreamEnabled() {
					a.t.Error("JetStream is on")
				}
			}},
		{"have the server publish for it: a reply or a trace on another's subject",
			"nothing is sent", with, func(a *attacker) {
				a.wantSilence(func() {
					for _, s := range []string{subject(a.run, "up", "alice"), subject(a.run, "to", "alice") + ".x"} {
						a.nc.PublishRequest(subject(a.run, "get", "mallory"), s, []byte("x 0"))
						a.nc.PublishRequest(subject(a.run, "ask", "mallory"), s, []byte("{}"))
						m := a.seal("ask", envelope{Op: opAsk})
						m.Header.Set("Nats-Trace-Dest", s)
						a.nc.PublishMsg(m)
					}
				})
			}},
		{"connect in another way: another account, as a router, with another's key",
			"an error, and the connection is closed", with, func(a *attacker) {
				alice := expect.Must(nkeys.FromSeed([]byte(a.alice.Credentials.Seed)))(a.t)
				for connect, commands := range map[string]string{
					`,"account":"$SYS"`: "", `,"account":"new","new_account":true`: "",
					"": "RS+ $G fed.> \r\n", `,"lang":"go"`: "LS+ fed.>\r\n",
					`,"nkey":"` + expect.Must(alice.PublicKey())(a.t) + `"`: ""} {
					said := a.raw(connect, func(w *bufio.Writer) { fmt.Fprint(w, commands) })
					if !strings.HasPrefix(said, "-ERR") {
						a.t.Errorf("%s %q: %q", connect, commands, said)
					}
				}
			}},
		{"send its update again", "`duplicate`; it is not in the journal", with, func(a *attacker) {
			m := a.sealUpdate(a.update())
			a.nc.PublishMsg(m)
			if r := a.answer().Receipt; r == nil || !r.Accepted {
				a.t.Fatalf("%+v", r)
			}
			before := a.events()
			for range 5 {
				a.nc.PublishMsg(m)
				if r := a.answer().Receipt; r == nil || !r.Accepted { // the receipt of the first
					a.t.Errorf("%+v", r)
				}
			}
			if after := a.events(); after != before {
				a.t.Errorf("%d events", after-before)
			}
		}},
		{"send another's message as its own", "`foreign`", with, func(a *attacker) {
			alice := a.world.rawAgent(a.alice)
			a.task = alice.join()
			u := a.update()
			u.Agent = 0
			m := alice.seal("up", a.envelope(u))
			alice.nc.Close()
			m.Subject = subject(a.run, "up", "mallory")
			a.nc.PublishMsg(m)
			a.wantRefusal(reasonForeign, func(u *protocol.Update) { u.Agent = 0 })
		}},
		{"answer another task: a version that is old or of the future, another kind or step",
			"`version`; it is not in the journal", with, func(a *attacker) {
				before := a.events()
				for _, change := range []func(*protocol.Update){func(u *protocol.Update) { u.Version = 7 },
					func(u *protocol.Update) { u.Step = 1 }, func(u *protocol.Update) { u.Attempt = 1 },
					func(u *protocol.Update) { u.Kind = protocol.Solve },
					func(u *protocol.Update) { u.Kind = protocol.Stop }} {
					a.wantRefusal("version", change)
				}
				if after := a.events(); after != before {
					a.t.Errorf("%d events", after-before)
				}
			}},
		{"a kind of 5000 letters, counts of -1 or 2^62, a return of 1e300", "`damaged`", with, func(a *attacker) {
			long := a.update()
			long.Kind = protocol.Kind(strings.Repeat("k", 5000))
			e := a.envelope(long)
			e.Key = a.task.Key
			a.send("up", e)
			if r := a.answer().Receipt; r == nil || r.Reason != reasonDamaged {
				a.t.Errorf("%+v", r)
			}
			for _, change := range []func(*protocol.Update){func(u *protocol.Update) { u.Stats.Steps = -1 },
				func(u *protocol.Update) { u.Stats.Episodes = 1 << 62 },
				func(u *protocol.Update) { u.Stats.Return = 1e300 }} {
				a.wantRefusal(reasonDamaged, change)
			}
		}},
		{"text that moves a terminal's cursor", "one line without it", with, func(a *attacker) {
			a.send("ask", envelope{Op: opAsk, Key: taskKey{Kind: "\x1b[2J\n"}})
			i := a.identity()
			i.Task = "\x1b[2J\nserver: all is well" + strings.Repeat("x", 1<<17)
			a.ask(envelope{Op: opJoin, Identity: i})
			for _, line := range a.warnings() {
				if strings.ContainsAny(line, "\x1b\n") || len(line) > 2*maxText {
					a.t.Errorf("%q", line)
				}
			}
		}},
		{"a message of 100 MB", "the connection is closed at its first line", with, func(a *attacker) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			said := a.raw("", func(w *bufio.Writer) {
				fmt.Fprintf(w, "PUB %s %d\r\n", subject(a.run, "up", "mallory"), 100<<20)
				for range 100 {
					w.Write(bytes.Repeat([]byte{'x'}, 1<<20))
				}
			})
			runtime.ReadMemStats(&after)
			if got := after.Sys - before.Sys; !strings.Contains(said, "Maximum Payload") && said != "" || got > 64<<20 {
				a.t.Errorf("%q, %d bytes more memory", said, got)
			}
		}},
		{"an object of 100 MB, of any or of no length", "`damaged`, and no memory", with, func(a *attacker) {
			for _, size := range []int{100 << 20, 1 << 60, 0, -1} {
				a.send("up", envelope{Op: opUpdate, Key: a.task.Key, Object: &object{Size: size, SHA256: "x"}})
				if r := a.answer().Receipt; r == nil || r.Reason != reasonDamaged {
					a.t.Errorf("%d: %+v", size, r)
				}
			}
		}},
		{"10^6 small messages",
			"those above 8 at a time are dropped (`flood`); others are served", with, func(a *attacker) {
				junk, ask := nats.NewMsg(subject(a.run, "ask", "mallory")), a.seal("ask", envelope{Op: opAsk})
				junk.Data = []byte("x")
				a.flood(floodSize(20_000), func(i int) *nats.Msg { return []*nats.Msg{junk, ask}[i%2] })
			}},
		{"10^6 updates that answer no task", "the same, and the journal does not grow", with, func(a *attacker) {
			u, before := a.update(), a.events()
			u.Version = 9
			m := a.sealUpdate(u)
			a.flood(floodSize(20_000), func(int) *nats.Msg { return m })
			if after := a.events(); after > before+1 { // alice has joined
				a.t.Errorf("%d events", after-before)
			}
		}},
		{"10^6 objects that nobody offers", "the same, and the server reads one at a time", with, func(a *attacker) {
			a.flood(floodSize(2_000), func(i int) *nats.Msg {
				o := &object{Size: 100, SHA256: fmt.Sprint(i)}
				return a.seal("up", envelope{Op: opUpdate, Key: a.task.Key, Object: o})
			})
			if n := runtime.NumGoroutine(); n > 100 {
				a.t.Errorf("%d goroutines", n)
			}
		}},
		{"join again and again", "20 events at once, and one a second", with, func(a *attacker) {
			before, began := a.events(), time.Now()
			for range 3 * burst {
				a.send("ask", envelope{Op: opJoin, Identity: a.identity(), Whole: true})
				a.ask(envelope{Op: opAsk}) // the server has read it
			}
			if n := a.events() - before; n > burst+2+int(time.Since(began).Seconds()) {
				a.t.Errorf("%d events", n)
			}
		}},
		{"sessions of one name that never say whether they live",
			"a second is refused while the first lives; others do not wait", with, func(a *attacker) {
				pings := make(chan *nats.Msg, 100)
				expect.Must(a.nc.ChanSubscribe(subject(a.run, "get", "mallory")+".>", pings))(a.t)
				for i := range 5 {
					a.send("ask", envelope{Op: opHello, Instance: fmt.Sprint("y", i)})
				}
				a.world.rawAgent(a.alice).join() // while the server waits for the first
				if n := len(pings); n > 2 {
					a.t.Errorf("the server has asked %d times", n)
				}
			}},
		{"many connections", "the oldest above 4 are closed", with, func(a *attacker) {
			var all []*nats.Conn
			for range 10 {
				all = append(all, a.world.rawAgent(a.options, nats.NoReconnect()).nc)
			}
			open := func() int {
				return len(slices.DeleteFunc(slices.Clone(all), func(nc *nats.Conn) bool { return nc.IsClosed() }))
			}
			waitFor(a.t, "connections to be closed", func() bool { return open() <= maxConnections })
			if all[9].IsClosed() {
				a.t.Error("the newest is closed")
			}
		}},
		{"many subscriptions", "an error, above 5000", with, func(a *attacker) {
			into := make(chan *nats.Msg)
			for i := range maxSubscriptions {
				s := fmt.Sprint(subject(a.run, "to", "mallory"), ".", i)
				expect.Must(a.nc.ChanSubscribe(s, into))(a.t)
			}
			a.nc.Flush()
			if err := a.nc.LastError(); err == nil || !strings.Contains(err.Error(), "maximum subscriptions exceeded") {
				a.t.Error(err)
			}
		}},
		{"a clock a day off", "nothing: no clock matters", with, func(a *attacker) {
			for _, off := range []time.Duration{-25 * time.Hour, 25 * time.Hour} {
				o := clientTLS(a.options.Credentials.CA)
				o.Time = func() time.Time { return time.Now().Add(off) }
				a.world.rawAgent(a.options, nats.Secure(o)).nc.Close()
			}
		}},
		{"replays after the server has restarted",
			"`version`: it counts once", with, func(a *attacker) {
				m := a.sealUpdate(a.update())
				a.nc.PublishMsg(m)
				a.answer()
				a.restart()
				a.join()
				before := a.events()
				a.nc.PublishMsg(m)
				if r := a.answer().Receipt; r == nil || r.Reason != "version" || a.events() != before {
					a.t.Errorf("%+v", r)
				}
			}},
		{"NaN or infinity", "`finite`: it is absent from the round", without, func(a *attacker) {
			a.wantRefusal("finite", func(u *protocol.Update) {
				u.Vectors = [][]float64{{1, 2, math.NaN(), math.Inf(1), math.Inf(-1)}}
			})
		}},
		{"numbers of other shapes", "`length` or `kind`: it is absent from the round", without, func(a *attacker) {
			for _, shape := range [][][]float64{{{1, 2, 3, 4, 5, 6}}, {{1}, {2}, {3}}} {
				a.wantRefusal(reasonTooLong, func(u *protocol.Update) { u.Vectors = shape })
			}
			a.wantRefusal("kind", func(u *protocol.Update) { u.Vectors = [][]float64{{1, 2, 3, 4, 5}, {1, 2, 3, 4, 5}} })
		}},
		{"zeros", "`norm`: it is absent from the round", without, func(a *attacker) {
			a.wantRefusal("norm", func(u *protocol.Update) { u.Vectors = [][]float64{make([]float64, size)} })
		}},
		{"a revoked key",
			"the connection is closed within a second, no other is opened, and the agent has left for good", "", func(a *attacker) {
				a.nc.Close()
				a.rawAgent = a.world.rawAgent(a.options, nats.NoReconnect())
				expect.OK(a.t, a.keys.Revoke("mallory"))
				waitFor(a.t, "the connection to be closed", a.nc.IsClosed)
				_, err := nats.Connect(a.options.Server, expect.Must(withKey(a.key))(a.t),
					nats.Secure(clientTLS(a.options.Credentials.CA)))
				if !errors.Is(err, nats.ErrAuthorization) {
					a.t.Errorf("connects again: %v", err)
				}
			}},
	}
	for _, try := range attempts {
		t.Run(try.what, func(t *testing.T) {
			a := newAttacker(t)
			try.do(a)
			agents := []AgentOptions{a.alice, a.options}
			if try.end == "" {
				agents = agents[:1]
			}
			if end := a.finish(agents...); end != try.end && try.end != "" {
				t.Errorf("the run ends with other bits; %q", a.warnings())
			}
			if row := fmt.Sprintf("| %s | %s |\n", try.what, try.gets); !strings.Contains(text, row) {
				t.Errorf("docs/federated.md lacks %s", row)
			}
		})
	}
}

// reference is θ's hash after a run of alice and mallory, whose first update is changed.
func reference(t *testing.T, change func(*protocol.Update)) string {
	p := newCluster(t, protocol.FedPG)
	p.o.Agents, p.o.Rounds, p.agents = 2, new(3), p.agents[:2]
	server := p.server()
	p.work(inMemory{server}, p.join(inMemory{server}), math.MaxInt, func(m any) any {
		if u, ok := m.(protocol.Update); ok && change != nil && u.Agent == 1 && u.Version == 0 {
			change(&u)
			return p.byWire(u)
		}
		return p.byWire(m)
	})
	return Hash(server.Params())
}

// TestSieve: of an agent eight envelopes wait, others pass, and what is dropped is counted.
func TestSieve(t *testing.T) {
	s := newInbox()
	for _, name := range []string{"m", "a"} {
		for range map[string]int{"m": 20, "a": 3}[name] {
			s.put(t.Context(), nats.NewMsg(subject("r", "ask", name)))
		}
	}
	s.put(t.Context(), nats.NewMsg(subject("r", "get", "b"))) // is for the offers
	s.remove("m")
	s.put(t.Context(), nats.NewMsg(subject("r", "up", "m")))
	if dropped := s.takeDropped(); len(s.queue) != maxQueued+3+1 || len(dropped) != 1 || dropped["m"] != 20-maxQueued {
		t.Errorf("%d envelopes wait, %v are dropped", len(s.queue), dropped)
	}
}
