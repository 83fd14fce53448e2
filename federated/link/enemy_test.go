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
	"os"
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
	"github.com/posttrain/posttrain/internal/testkit/need"
)

// hand is an agent's place in a run without the agent's program.
type hand struct {
	*world
	name    string
	nc      *nats.Conn
	key     nkeys.KeyPair // nil: a run without keys
	public  string        // of the server
	answers *nats.Subscription
	denied  chan error // by the broker
}

// hand connects as an agent.
func (w *world) hand(o AgentOptions, more ...nats.Option) *hand {
	w.t.Helper()
	h := &hand{world: w, name: o.Name, denied: make(chan error, 64)}
	more = append(more, nats.CustomInboxPrefix(inboxPrefix(o.Name)),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { h.denied <- err }))
	if c := o.Credentials; c != nil {
		h.key, h.public = must[nkeys.KeyPair](w.t)(nkeys.FromSeed([]byte(c.Seed))), c.Key
		more = append([]nats.Option{nats.Secure(trusting(c.CA)), must[nats.Option](w.t)(withKey(h.key))}, more...)
	}
	h.nc = must[*nats.Conn](w.t)(nats.Connect(o.Server, more...))
	w.t.Cleanup(h.nc.Close)
	h.answers = must[*nats.Subscription](w.t)(h.nc.SubscribeSync(subject(w.run, "to", h.name) + ".>"))
	return h
}

// sealed is a letter of the agent.
func (h *hand) sealed(what string, l letter) *nats.Msg {
	h.t.Helper()
	l.Run, l.Agent = h.run, h.name
	if l.Instance == "" {
		l.Instance = "x"
	}
	if l.Protocol == 0 {
		l.Protocol = protocol.Version
	}
	return must[*nats.Msg](h.t)(l.seal(subject(h.run, what, h.name), h.key))
}

func (h *hand) send(what string, l letter) {
	h.t.Helper()
	if err := h.nc.PublishMsg(h.sealed(what, l)); err != nil {
		h.t.Fatal(err)
	}
}

// answer is the server's next letter.
func (h *hand) answer() *letter {
	h.t.Helper()
	m := must[*nats.Msg](h.t)(h.answers.NextMsg(20 * time.Second))
	return must[*letter](h.t)(unseal(m, h.run, h.public))
}

func (h *hand) ask(l letter) *letter {
	h.t.Helper()
	h.send("ask", l)
	return h.answer()
}

func (h *hand) identity() *protocol.Identity {
	i := must[*quad](h.t)(newQuad(h.d, 0)).Workload.Identity()
	return &i
}

// join takes the agent's place once the server listens, and returns its task.
func (h *hand) join() *letter {
	h.t.Helper()
	var l *letter
	waitFor(h.t, "the server", func() bool {
		h.send("ask", letter{Op: opHello})
		h.send("ask", letter{Op: opJoin, Identity: h.identity()})
		for {
			m, err := h.answers.NextMsg(250 * time.Millisecond)
			if err != nil {
				return false // as the program would, it asks again
			}
			if l = must[*letter](h.t)(unseal(m, h.run, h.public)); l.Op != opConfig {
				return true
			}
		}
	})
	return l
}

// enemy has the credentials of agent mallory, number 1, in a run of fedpg with alice, and mallory's first task.
type enemy struct {
	*hand
	p       *party
	dir     string
	options AgentOptions // of mallory
	alice   AgentOptions
	spy     *nats.Conn // sees all that travels
	task    *letter
	stop    context.CancelFunc
	served  chan error
}

func newEnemy(t *testing.T) *enemy {
	t.Helper()
	p := newParty(t, protocol.FedPG)
	p.o.Agents, p.o.Rounds = 2, new(3)
	w := newWorld(t, size, 0, true)
	p.form.Run = w.run
	e := &enemy{p: p, dir: newDiary(t, 0).dir}
	w.most, w.places = 2, map[string]int{"alice": 0, "mallory": 1}
	e.alice, e.options = w.agent("alice"), w.agent("mallory")
	for _, o := range []*AgentOptions{&e.alice, &e.options} {
		o.Build = func(number int, _ string) (Worker, int, error) { return p.agents[number], size, nil }
	}
	e.hand = &hand{world: w}
	e.start()
	e.hand = w.hand(e.options)
	e.task = e.join()
	return e
}

// start begins to serve, or begins again from the folder.
func (e *enemy) start() {
	e.t.Helper()
	folder := must[*run.Folder](e.t)(run.Open(e.dir))
	e.real = must[*Keeper](e.t)(Open(folder, e.p.server(), Options{Form: e.p.form, Every: 2}))
	e.spy = must[*nats.Conn](e.t)(e.broker.connect())
	ctx, stop := context.WithCancel(e.t.Context())
	served := make(chan error, 1)
	e.stop, e.served = stop, served
	go func() {
		defer folder.Close()
		defer e.spy.Close()
		served <- e.serve(ctx)
	}()
}

// restart ends the server and its broker, and starts both again. The enemy connects again.
func (e *enemy) restart() {
	e.t.Helper()
	e.stop()
	<-e.served
	address := strings.TrimPrefix(e.broker.URL(), "tls://")
	e.broker.Close()
	e.startBroker(address)
	e.start()
	e.nc.Close()
	e.hand = e.world.hand(e.options)
}

// finish ends the enemy's connection, has agents' programs take part to the end, and returns θ's hash.
func (e *enemy) finish(agents ...AgentOptions) string {
	e.t.Helper()
	e.nc.Close()
	ctx, stop := context.WithTimeout(e.t.Context(), time.Minute)
	defer stop()
	ends := make(chan error, 3)
	for _, o := range agents {
		go func() { ends <- RunAgent(ctx, o) }()
	}
	go func() { ends <- <-e.served }()
	for range len(agents) + 1 {
		if err := <-ends; err != nil {
			e.t.Errorf("%v; %q", err, e.warnings())
			stop()
			e.stop()
		}
	}
	e.stop()
	return Hash(e.real.server.Params())
}

// update is mallory's right answer to its first task.
func (e *enemy) update() protocol.Update {
	e.t.Helper()
	task := must[protocol.Task](e.t)(e.p.form.DecodeTask(e.task.blob))
	return must[protocol.Update](e.t)(e.p.agents[1].Do(e.t.Context(), task))
}

// sealedUpdate is its letter.
func (e *enemy) sealedUpdate(u protocol.Update) *nats.Msg {
	e.t.Helper()
	return e.sealed("up", e.letter(u))
}

func (e *enemy) letter(u protocol.Update) letter {
	e.t.Helper()
	return letter{Op: opUpdate, Key: keyOfUpdate(u), blob: must[[]byte](e.t)(e.p.form.EncodeUpdate(u))}
}

// refused sends an update, and wants its refusal.
func (e *enemy) refused(reason string, change func(*protocol.Update)) {
	e.t.Helper()
	u := e.update()
	change(&u)
	e.nc.PublishMsg(e.sealedUpdate(u))
	if r := e.answer().Receipt; r == nil || r.Accepted || r.Reason != reason {
		e.t.Errorf("%+v, want %s", r, reason)
	}
}

// events are the lines of the journal.
func (e *enemy) events() int {
	return bytes.Count(must[[]byte](e.t)(os.ReadFile(filepath.Join(e.dir, Name))), []byte("\n"))
}

// subjects are those of an agent.
func (e *enemy) subjects(agent string) (all []string) {
	for _, what := range []string{"up", "ask", "get", "to"} {
		all = append(all, subject(e.run, what, agent), subject(e.run, what, agent)+".x")
	}
	return append(all, inboxPrefix(agent)+".x")
}

// violation waits for the broker's refusal.
func (e *enemy) violation(what string) {
	e.t.Helper()
	e.nc.Flush()
	select {
	case err := <-e.denied:
		if !errors.Is(err, nats.ErrPermissionViolation) {
			e.t.Errorf("%s: %v", what, err)
		}
	case <-time.After(20 * time.Second):
		e.t.Errorf("%s is allowed", what)
	}
}

// silence wants nothing to travel on subjects of alice, who is not here.
func (e *enemy) silence(act func()) {
	e.t.Helper()
	heard := must[*nats.Subscription](e.t)(e.spy.SubscribeSync("fed." + e.run + ".*.alice"))
	more := must[*nats.Subscription](e.t)(e.spy.SubscribeSync("fed." + e.run + ".*.alice.>"))
	e.spy.Flush()
	act()
	e.nc.Flush()
	e.ask(letter{Op: opAsk}) // the server has read what came before
	for _, sub := range []*nats.Subscription{heard, more} {
		if m, err := sub.NextMsg(50 * time.Millisecond); err == nil {
			e.t.Errorf("%s: %q", m.Subject, m.Data)
		}
	}
}

// raw speaks NATS without a library, and returns what the broker says after some commands.
func (e *enemy) raw(connect string, write func(w *bufio.Writer)) string {
	e.t.Helper()
	conn := must[net.Conn](e.t)(net.Dial("tcp", strings.TrimPrefix(e.broker.URL(), "tls://")))
	defer conn.Close()
	info := must[string](e.t)(bufio.NewReader(conn).ReadString('\n'))
	_, nonce, _ := strings.Cut(info, `"nonce":"`)
	nonce, _, _ = strings.Cut(nonce, `"`)
	secure := tls.Client(conn, trusting(e.options.Credentials.CA))
	in, out := bufio.NewReader(secure), bufio.NewWriter(secure)
	sig := must[[]byte](e.t)(e.key.Sign([]byte(nonce)))
	fmt.Fprintf(out, "CONNECT {\"nkey\":%q,\"sig\":%q,\"headers\":true%s}\r\n", must[string](e.t)(e.key.PublicKey()),
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

// full is the size of a flood: a million with POSTTRAIN_NEEDS=slow.
func full(some int) int {
	if need.Required("slow") {
		return 1_000_000
	}
	return some
}

// flood sends letters of a kind, and wants alice to hear from the server meanwhile, few lines, and little memory.
func (e *enemy) flood(n int, letter func(i int) *nats.Msg) {
	e.t.Helper()
	alice := e.world.hand(e.alice)
	began, lines := time.Now(), len(e.warnings())
	for i := range n {
		if err := e.nc.PublishMsg(letter(i)); err != nil {
			e.t.Fatal(err)
		}
		if i == n/2 {
			e.nc.Flush()
			alice.join()
			alice.nc.Close()
		}
	}
	e.nc.FlushTimeout(time.Minute)
	took := time.Since(began)
	said, most := len(e.warnings())-lines, 2*(mostAtOnce+int(took.Seconds()+2))
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	e.t.Logf("%d letters in %v: %d lines, %d MB of memory from the system", n, took, said, m.Sys>>20)
	if said > most {
		e.t.Errorf("%d lines after %d letters in %v, want at most %d", said, n, took, most)
	}
}

// TestEnemy: with one agent's credentials, everything that NATS offers. Each attempt gets what the table of
// docs/federated.md says, and the run ends with the bits of a run without it; or, where the attempt is mallory's answer
// to the first task, without mallory in the first round.
func TestEnemy(t *testing.T) {
	text := string(must[[]byte](t)(os.ReadFile("../../docs/federated.md")))
	with, without := reference(t, nil), reference(t, func(u *protocol.Update) { u.Vectors[0][0] = math.NaN() })
	attempts := []struct {
		what, gets string
		end        string // θ's hash; "": mallory is gone
		do         func(e *enemy)
	}{
		{"subscribe to `>`, to others' subjects, to the system's",
			"a permissions violation", with, func(e *enemy) {
				for _, s := range append(e.subjects("alice"), ">", "fed.>", "fed.*.up.mallory", subject(e.run, "up", "*"),
					subject(e.run, "to", "alice")+".>", subject(e.run, "up", "mallory"), "$SYS.>", "$JS.>", "_INBOX.>") {
					e.nc.SubscribeSync(s)
					e.violation(s)
					e.nc.QueueSubscribeSync(s, "q")
					e.violation(s + " in a group")
				}
			}},
		{"publish as the server, or as another agent", "a permissions violation", with, func(e *enemy) {
			for _, s := range append(e.subjects("alice"), subject(e.run, "to", "mallory")+".x",
				subject(e.run, "get", "mallory")+".x", "_INBOX.x", "fed.x", openRun) {
				e.nc.Publish(s, []byte("{}"))
				e.violation(s)
			}
		}},
		{"use JetStream, services, the system's requests",
			"a permissions violation; JetStream is off", with, func(e *enemy) {
				for _, s := range []string{"$JS.API.INFO", "$JS.API.STREAM.CREATE.x", "$SRV.PING", "$SYS.REQ.SERVER.PING",
					"$SYS.REQ.USER.INFO"} {
					e.nc.Publish(s, nil)
					e.violation(s)
				}
				if e.broker.server.JetStreamEnabled() {
					e.t.Error("JetStream is on")
				}
			}},
		{"have the server publish for it: a reply or a trace on another's subject",
			"nothing is sent", with, func(e *enemy) {
				e.silence(func() {
					for _, s := range []string{subject(e.run, "up", "alice"), subject(e.run, "to", "alice") + ".x"} {
						e.nc.PublishRequest(subject(e.run, "get", "mallory"), s, []byte("x 0"))
						e.nc.PublishRequest(subject(e.run, "ask", "mallory"), s, []byte("{}"))
						m := e.sealed("ask", letter{Op: opAsk})
						m.Header.Set("Nats-Trace-Dest", s)
						e.nc.PublishMsg(m)
					}
				})
			}},
		{"connect in another way: another account, as a router, with another's key",
			"an error, and the connection is closed", with, func(e *enemy) {
				alice := must[nkeys.KeyPair](e.t)(nkeys.FromSeed([]byte(e.alice.Credentials.Seed)))
				for connect, commands := range map[string]string{
					`,"account":"$SYS"`: "", `,"account":"new","new_account":true`: "",
					"": "RS+ $G fed.> \r\n", `,"lang":"go"`: "LS+ fed.>\r\n",
					`,"nkey":"` + must[string](e.t)(alice.PublicKey()) + `"`: ""} {
					said := e.raw(connect, func(w *bufio.Writer) { fmt.Fprint(w, commands) })
					if !strings.HasPrefix(said, "-ERR") {
						e.t.Errorf("%s %q: %q", connect, commands, said)
					}
				}
			}},
		{"send its update again", "`duplicate`; it is not in the journal", with, func(e *enemy) {
			m := e.sealedUpdate(e.update())
			e.nc.PublishMsg(m)
			if r := e.answer().Receipt; r == nil || !r.Accepted {
				e.t.Fatalf("%+v", r)
			}
			before := e.events()
			for range 5 {
				e.nc.PublishMsg(m)
				if r := e.answer().Receipt; r == nil || !r.Accepted { // that of the first
					e.t.Errorf("%+v", r)
				}
			}
			if after := e.events(); after != before {
				e.t.Errorf("%d events", after-before)
			}
		}},
		{"send another's letter as its own", "`foreign`", with, func(e *enemy) {
			alice := e.world.hand(e.alice)
			e.task = alice.join()
			u := e.update()
			u.Agent = 0
			m := alice.sealed("up", e.letter(u))
			alice.nc.Close()
			m.Subject = subject(e.run, "up", "mallory")
			e.nc.PublishMsg(m)
			e.refused(reasonForeign, func(u *protocol.Update) { u.Agent = 0 })
		}},
		{"answer another task: a version that is old or of the future, another kind or step",
			"`version`; it is not in the journal", with, func(e *enemy) {
				before := e.events()
				for _, change := range []func(*protocol.Update){func(u *protocol.Update) { u.Version = 7 },
					func(u *protocol.Update) { u.Step = 1 }, func(u *protocol.Update) { u.Attempt = 1 },
					func(u *protocol.Update) { u.Kind = protocol.Solve },
					func(u *protocol.Update) { u.Kind = protocol.Stop }} {
					e.refused("version", change)
				}
				if after := e.events(); after != before {
					e.t.Errorf("%d events", after-before)
				}
			}},
		{"a kind of 5000 letters, counts of -1 or 2^62, a return of 1e300", "`damaged`", with, func(e *enemy) {
			long := e.update()
			long.Kind = protocol.Kind(strings.Repeat("k", 5000))
			l := e.letter(long)
			l.Key = e.task.Key
			e.send("up", l)
			if r := e.answer().Receipt; r == nil || r.Reason != reasonDamaged {
				e.t.Errorf("%+v", r)
			}
			for _, change := range []func(*protocol.Update){func(u *protocol.Update) { u.Stats.Steps = -1 },
				func(u *protocol.Update) { u.Stats.Episodes = 1 << 62 },
				func(u *protocol.Update) { u.Stats.Return = 1e300 }} {
				e.refused(reasonDamaged, change)
			}
		}},
		{"text that moves a terminal's cursor", "one line without it", with, func(e *enemy) {
			e.send("ask", letter{Op: opAsk, Key: taskKey{Kind: "\x1b[2J\n"}})
			i := e.identity()
			i.Task = "\x1b[2J\nserver: all is well" + strings.Repeat("x", 1<<17)
			e.ask(letter{Op: opJoin, Identity: i})
			for _, line := range e.warnings() {
				if strings.ContainsAny(line, "\x1b\n") || len(line) > 2*mostText {
					e.t.Errorf("%q", line)
				}
			}
		}},
		{"a message of 100 MB", "the connection is closed at its first line", with, func(e *enemy) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			said := e.raw("", func(w *bufio.Writer) {
				fmt.Fprintf(w, "PUB %s %d\r\n", subject(e.run, "up", "mallory"), 100<<20)
				for range 100 {
					w.Write(bytes.Repeat([]byte{'x'}, 1<<20))
				}
			})
			runtime.ReadMemStats(&after)
			if got := after.Sys - before.Sys; !strings.Contains(said, "Maximum Payload") && said != "" || got > 64<<20 {
				e.t.Errorf("%q, %d bytes more memory", said, got)
			}
		}},
		{"an object of 100 MB, of any or of no length", "`damaged`, and no memory", with, func(e *enemy) {
			for _, size := range []int{100 << 20, 1 << 60, 0, -1} {
				e.send("up", letter{Op: opUpdate, Key: e.task.Key, Object: &object{Size: size, SHA256: "x"}})
				if r := e.answer().Receipt; r == nil || r.Reason != reasonDamaged {
					e.t.Errorf("%d: %+v", size, r)
				}
			}
		}},
		{"10^6 small messages",
			"those above 8 at a time are dropped (`flood`); others are served", with, func(e *enemy) {
				junk, ask := nats.NewMsg(subject(e.run, "ask", "mallory")), e.sealed("ask", letter{Op: opAsk})
				junk.Data = []byte("x")
				e.flood(full(20_000), func(i int) *nats.Msg { return []*nats.Msg{junk, ask}[i%2] })
			}},
		{"10^6 updates that answer no task", "the same, and the journal does not grow", with, func(e *enemy) {
			u, before := e.update(), e.events()
			u.Version = 9
			m := e.sealedUpdate(u)
			e.flood(full(20_000), func(int) *nats.Msg { return m })
			if after := e.events(); after > before+1 { // alice has joined
				e.t.Errorf("%d events", after-before)
			}
		}},
		{"10^6 objects that nobody offers", "the same, and the server reads one at a time", with, func(e *enemy) {
			e.flood(full(2_000), func(i int) *nats.Msg {
				o := &object{Size: 100, SHA256: fmt.Sprint(i)}
				return e.sealed("up", letter{Op: opUpdate, Key: e.task.Key, Object: o})
			})
			if n := runtime.NumGoroutine(); n > 100 {
				e.t.Errorf("%d goroutines", n)
			}
		}},
		{"join again and again", "20 events at once, and one a second", with, func(e *enemy) {
			before, began := e.events(), time.Now()
			for range 3 * mostAtOnce {
				e.send("ask", letter{Op: opJoin, Identity: e.identity(), Whole: true})
				e.ask(letter{Op: opAsk}) // the server has read it
			}
			if n := e.events() - before; n > mostAtOnce+2+int(time.Since(began).Seconds()) {
				e.t.Errorf("%d events", n)
			}
		}},
		{"sessions of one name that never say whether they live",
			"a second is refused while the first lives; others do not wait", with, func(e *enemy) {
				pings := make(chan *nats.Msg, 100)
				must[*nats.Subscription](e.t)(e.nc.ChanSubscribe(subject(e.run, "get", "mallory")+".>", pings))
				for i := range 5 {
					e.send("ask", letter{Op: opHello, Instance: fmt.Sprint("y", i)})
				}
				e.world.hand(e.alice).join() // while the server waits for the first
				if n := len(pings); n > 2 {
					e.t.Errorf("the server has asked %d times", n)
				}
			}},
		{"many connections", "the oldest above 4 are closed", with, func(e *enemy) {
			var all []*nats.Conn
			for range 10 {
				all = append(all, e.world.hand(e.options, nats.NoReconnect()).nc)
			}
			open := func() int {
				return len(slices.DeleteFunc(slices.Clone(all), func(nc *nats.Conn) bool { return nc.IsClosed() }))
			}
			waitFor(e.t, "connections to be closed", func() bool { return open() <= maxConnections })
			if all[9].IsClosed() {
				e.t.Error("the newest is closed")
			}
		}},
		{"many subscriptions", "an error, above 5000", with, func(e *enemy) {
			into := make(chan *nats.Msg)
			for i := range maxSubscriptions {
				s := fmt.Sprint(subject(e.run, "to", "mallory"), ".", i)
				must[*nats.Subscription](e.t)(e.nc.ChanSubscribe(s, into))
			}
			e.nc.Flush()
			if err := e.nc.LastError(); err == nil || !strings.Contains(err.Error(), "maximum subscriptions exceeded") {
				e.t.Error(err)
			}
		}},
		{"a clock a day off", "nothing: no clock matters", with, func(e *enemy) {
			for _, off := range []time.Duration{-25 * time.Hour, 25 * time.Hour} {
				o := trusting(e.options.Credentials.CA)
				o.Time = func() time.Time { return time.Now().Add(off) }
				e.world.hand(e.options, nats.Secure(o)).nc.Close()
			}
		}},
		{"replays after the server has restarted",
			"`version`: it counts once", with, func(e *enemy) {
				m := e.sealedUpdate(e.update())
				e.nc.PublishMsg(m)
				e.answer()
				e.restart()
				e.join()
				before := e.events()
				e.nc.PublishMsg(m)
				if r := e.answer().Receipt; r == nil || r.Reason != "version" || e.events() != before {
					e.t.Errorf("%+v", r)
				}
			}},
		{"NaN or infinity", "`finite`: it is absent from the round", without, func(e *enemy) {
			e.refused("finite", func(u *protocol.Update) {
				u.Vectors = [][]float64{{1, 2, math.NaN(), math.Inf(1), math.Inf(-1)}}
			})
		}},
		{"numbers of other shapes", "`length` or `kind`: it is absent from the round", without, func(e *enemy) {
			for _, shape := range [][][]float64{{{1, 2, 3, 4, 5, 6}}, {{1}, {2}, {3}}} {
				e.refused(reasonTooLong, func(u *protocol.Update) { u.Vectors = shape })
			}
			e.refused("kind", func(u *protocol.Update) { u.Vectors = [][]float64{{1, 2, 3, 4, 5}, {1, 2, 3, 4, 5}} })
		}},
		{"zeros", "`norm`: it is absent from the round", without, func(e *enemy) {
			e.refused("norm", func(u *protocol.Update) { u.Vectors = [][]float64{make([]float64, size)} })
		}},
		{"a revoked key",
			"the connection is closed within a second, no other is opened, and the agent has left for good", "", func(e *enemy) {
				e.nc.Close()
				e.hand = e.world.hand(e.options, nats.NoReconnect())
				if err := e.keys.Revoke("mallory"); err != nil {
					e.t.Fatal(err)
				}
				waitFor(e.t, "the connection to be closed", e.nc.IsClosed)
				_, err := nats.Connect(e.options.Server, must[nats.Option](e.t)(withKey(e.key)),
					nats.Secure(trusting(e.options.Credentials.CA)))
				if !errors.Is(err, nats.ErrAuthorization) {
					e.t.Errorf("connects again: %v", err)
				}
			}},
	}
	for _, a := range attempts {
		t.Run(a.what, func(t *testing.T) {
			e := newEnemy(t)
			a.do(e)
			agents := []AgentOptions{e.alice, e.options}
			if a.end == "" {
				agents = agents[:1]
			}
			if end := e.finish(agents...); end != a.end && a.end != "" {
				t.Errorf("the run ends with other bits; %q", e.warnings())
			}
			if row := fmt.Sprintf("| %s | %s |\n", a.what, a.gets); !strings.Contains(text, row) {
				t.Errorf("docs/federated.md lacks %s", row)
			}
		})
	}
}

// reference is θ's hash after a run of alice and mallory, whose first update is changed.
func reference(t *testing.T, change func(*protocol.Update)) string {
	p := newParty(t, protocol.FedPG)
	p.o.Agents, p.o.Rounds, p.agents = 2, new(3), p.agents[:2]
	server := p.server()
	p.let(inMemory{server}, p.join(inMemory{server}), math.MaxInt, func(m any) any {
		if u, ok := m.(protocol.Update); ok && change != nil && u.Agent == 1 && u.Version == 0 {
			change(&u)
			return p.byWire(u)
		}
		return p.byWire(m)
	})
	return Hash(server.Params())
}

// TestSieve: of an agent eight letters wait, others pass, and what is dropped is counted.
func TestSieve(t *testing.T) {
	s := newSieve()
	for _, name := range []string{"m", "a"} {
		for range map[string]int{"m": 20, "a": 3}[name] {
			s.pass(t.Context(), nats.NewMsg(subject("r", "ask", name)))
		}
	}
	s.pass(t.Context(), nats.NewMsg(subject("r", "get", "b"))) // is for the offers
	s.read("m")
	s.pass(t.Context(), nats.NewMsg(subject("r", "up", "m")))
	if dropped := s.report(); len(s.out) != mostWaiting+3+1 || len(dropped) != 1 || dropped["m"] != 20-mostWaiting {
		t.Errorf("%d letters wait, %v are dropped", len(s.out), dropped)
	}
}
