package link

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nkeys"

	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// TestRefusedAgents: each fault is one line, at once.
func TestRefusedAgents(t *testing.T) {
	secure, open, other := newWorld(t, 5, 1, true), newWorld(t, 5, 1, false), newWorld(t, 5, 1, true)
	ctx, stop := wholeTest(t)
	defer stop()
	for _, w := range []*world{secure, open, other} {
		go w.serve(ctx)
	}
	bare := func(w *world) AgentOptions {
		o := w.agent("a")
		o.Credentials = nil
		return o
	}
	cases := []struct {
		name string
		with func() AgentOptions
		want string
	}{
		{"plaintext to a TLS server", func() AgentOptions {
			o := bare(secure)
			o.Server = strings.Replace(o.Server, "tls:", "nats:", 1)
			return o
		}, "wants TLS and credentials: want --credentials"},
		{"TLS without credentials", func() AgentOptions { o := bare(other); return o }, "wants TLS and credentials"},
		{"TLS to a plaintext server", func() AgentOptions {
			o := secure.agent("b")
			o.Server = open.broker.URL()
			return o
		}, `has no TLS or keys, but the credentials of agent "b" want them`},
		{"unknown CA", func() AgentOptions {
			o := secure.agent("c")
			o.Server = other.broker.URL()
			return o
		}, "certificate of another run or authority"},
		{"wrong key", func() AgentOptions {
			o := secure.agent("d")
			pair, _ := nkeys.CreateUser()
			seed, _ := pair.Seed()
			o.Credentials.Seed = string(seed)
			return o
		}, `refuses the key of agent "d"`},
		{"revoked", func() AgentOptions {
			o := secure.agent("e")
			expect.OK(t, secure.keys.Revoke("e"))
			return o
		}, `refuses the key of agent "e": it is revoked`},
		{"another name than in the credentials", func() AgentOptions {
			o := secure.agent("f")
			o.Name = "g"
			return o
		}, `credentials of agent "f", want those of agent "g"`},
		{"bad name", func() AgentOptions { o := bare(open); o.Name = "a.b"; return o }, `agent "a.b": want 1 to 32`},
		{"no URL", func() AgentOptions {
			o := bare(open)
			o.Server = "127.0.0.1:4222"
			return o
		}, "want a URL such as"},
		{"password in the URL", func() AgentOptions {
			o := bare(open)
			o.Server = "nats://me:secret@127.0.0.1:4222"
			return o
		}, "want credentials in a file"},
		{"another machine without TLS", func() AgentOptions {
			o := bare(open)
			o.Server = "nats://192.0.2.1:4222"
			return o
		}, "an address of another machine needs TLS"},
		{"another shape", func() AgentOptions {
			o := open.agent("h")
			o.Build = func(number int, _ string) (Worker, int, error) {
				q, err := newQuad(7, number)
				return numbered{q, number}, 7, err
			}
			return o
		}, "the agent has tensor 0 theta [7] float64, decay true, the server tensor 0 theta [5] float64"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			err := RunAgent(ctx, c.with())
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") ||
				strings.Contains(err.Error(), "secret") {
				t.Errorf("%v, want %q; warnings: %q", err, c.want, append(open.warnings(), secure.warnings()...))
			}
		})
	}
}

// TestTwoOfOneName: the second process of an agent is refused while the first lives, and takes over after it.
func TestTwoOfOneName(t *testing.T) {
	w := newWorld(t, 5, 1, false)
	ctx, stop := wholeTest(t)
	defer stop()
	go w.serve(ctx)
	busy, end := context.WithCancel(ctx)
	began, first := make(chan bool, 1), make(chan error, 1)
	o := w.agent("a")
	o.Build = func(number int, _ string) (Worker, int, error) {
		q, err := newQuad(5, number)
		return stuck{numbered{q, number}, began}, 5, err
	}
	go func() { first <- RunAgent(busy, o) }()
	<-began
	second := w.agent("a")
	if err := RunAgent(ctx, second); err == nil || !strings.Contains(err.Error(), "takes part in another process") {
		t.Errorf("a second process: %v", err)
	}
	end()
	<-first
	if err := RunAgent(ctx, second); err != nil {
		t.Errorf("after the first has ended: %v", err)
	}
}

// stuck works until it is stopped.
type stuck struct {
	numbered
	began chan bool
}

func (s stuck) Do(ctx context.Context, _ protocol.Task) (protocol.Update, error) {
	s.began <- true
	<-ctx.Done()
	return protocol.Update{}, ctx.Err()
}

// TestRevokedWhileItWorks: the connection is closed, the agent says why, the server continues without it.
func TestRevokedWhileItWorks(t *testing.T) {
	w := newWorld(t, 5, 1, true)
	ctx, stop := wholeTest(t)
	defer stop()
	served := make(chan error, 1)
	go func() { served <- w.serve(ctx) }()
	began := make(chan bool, 1)
	o := w.agent("a")
	o.Build = func(number int, _ string) (Worker, int, error) {
		q, err := newQuad(5, number)
		return stuck{numbered{q, number}, began}, 5, err
	}
	ended := make(chan error, 1)
	go func() { ended <- RunAgent(ctx, o) }()
	<-began
	expect.OK(t, w.keys.Revoke("a"))
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "refuses the key") {
		t.Errorf("the revoked agent: %v", err)
	}
	if err := RunAgent(ctx, w.agent("b")); err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// TestForgedLetters: an envelope on b's subject that a has signed, as a broker without rights would let pass, is
// refused by its signature; so is one of another run.
func TestForgedLetters(t *testing.T) {
	w := newWorld(t, 5, 3, true)
	ctx, stop := wholeTest(t)
	defer stop()
	a, b := w.agent("a"), w.agent("b")
	seen, listens := make(chan *Status, 1), make(chan bool, 100)
	w.onTick = func(s *Status) {
		listens <- true
		if s.Refused["foreign"] == 2 {
			select {
			case seen <- s:
			default:
			}
		}
	}
	served := make(chan error, 1)
	w.numbers["a"], w.numbers["b"] = 0, 1
	go func() { served <- w.serve(ctx) }()
	<-listens
	nc := expect.Must(w.broker.connect())(t)
	defer nc.Close()
	key := expect.Must(nkeys.FromSeed([]byte(a.Credentials.Seed)))(t)
	q := expect.Must(newQuad(5, 1))(t)
	u := expect.Must(numbered{q, 1}.Do(ctx, protocol.Task{Kind: protocol.Gradient, Params: q.Start()}))(t)
	for run, name := range map[string]string{w.run: "b", "another": "a"} {
		blob := expect.Must(Format{Run: run, Type: Float32, D: 5}.EncodeUpdate(u))(t)
		e := &envelope{Op: opUpdate, Run: run, Agent: name, Instance: "x", Key: keyOfUpdate(u), blob: blob}
		m := expect.Must(e.seal(subject(w.run, "up", name), key))(t)
		expect.OK(t, nc.PublishMsg(m))
	}
	if <-seen; len(w.memory.accepted) != 0 {
		t.Errorf("%d updates after forged envelopes", len(w.memory.accepted))
	}
	ends := make(chan error, 2)
	for _, o := range []AgentOptions{a, b} {
		go func() { ends <- RunAgent(ctx, o) }()
	}
	for _, c := range []chan error{ends, ends, served} {
		if err := <-c; err != nil {
			t.Error(err)
		}
	}
	w.checkApplied()
}

// TestBrokerRefusals: addresses that a server does not start with.
func TestBrokerRefusals(t *testing.T) {
	taken := newWorld(t, 5, 1, false).broker.URL()
	for _, c := range []struct{ listen, want string }{
		{"0.0.0.0:0", "an address that other machines reach needs TLS"},
		{":0", "needs TLS"},
		{"[::]:0", "needs TLS"},
		{"192.0.2.1:0", "needs TLS"},
		{"127.0.0.1", "want an address and a port"},
		{"127.0.0.1:99999", "want an address and a port"},
		{strings.TrimPrefix(taken, "nats://"), "address already in use"},
	} {
		b, err := StartBroker(BrokerOptions{Listen: c.listen, Run: "r"})
		if err == nil {
			b.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", c.listen, err, c.want)
		}
	}
}

// TestCredentials: files that are not credentials, and credentials that would overwrite others, are one line, without
// the secret.
func TestCredentials(t *testing.T) {
	keys := expect.Must(OpenKeys(filepath.Join(t.TempDir(), "keys")))(t)
	c := expect.Must(keys.Invite("r", "a", "tls://127.0.0.1:1"))(t)
	path := filepath.Join(t.TempDir(), "a.json")
	expect.OK(t, c.Write(path))
	if read, err := ReadCredentials(path); err != nil || read.Seed != c.Seed {
		t.Errorf("%v, %v", read, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if err := c.Write(path); err == nil || !strings.Contains(err.Error(), "not overwritten") {
		t.Errorf("written twice: %v", err)
	}
	_, err := keys.Invite("r", "a", "tls://127.0.0.1:1")
	expect.Error(t, err, "has been invited")
	if err := keys.Revoke("b"); err == nil || !strings.Contains(err.Error(), "has not been invited") {
		t.Errorf("revoked before it was invited: %v", err)
	}
	text := expect.Bytes(t, path)
	damaged := regexp.MustCompile(`"seed": "SU`).ReplaceAll(text, []byte(`"seed": "XX`))
	for name, bad := range map[string][]byte{"empty": nil, "cut": text[:len(text)-9], "seed": damaged,
		"other": []byte("{}")} {
		file := filepath.Join(t.TempDir(), name)
		expect.OK(t, os.WriteFile(file, bad, 0o600))
		_, err := ReadCredentials(file)
		if err == nil || !strings.Contains(err.Error(), "want the file that posttrain federated server --invite wrote") ||
			strings.Contains(err.Error(), c.Seed[4:20]) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRevokedWhileAway: an agent that is revoked while it is not here leaves the run, too, and does not come back under
// its name, also after the server's restart.
func TestRevokedWhileAway(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		w := newWorld(t, 5, 1, true)
		w.numbers["a"] = 0
		w.agent("a")
		expect.OK(t, w.keys.Revoke("a"))
		if restarted {
			w.revoked = []int{0}
		}
		ctx, stop := wholeTest(t)
		defer stop()
		gone := make(chan bool, 1)
		w.onTick = func(*Status) {
			if restarted || slices.Equal(w.memory.left, []int{0}) {
				select {
				case gone <- true:
				default:
				}
			}
		}
		served := make(chan error, 1)
		go func() { served <- w.serve(ctx) }()
		<-gone
		err := RunAgent(ctx, w.agent("a"))
		if err == nil || !strings.Contains(err.Error(), "has left this run for good: want another name") {
			t.Errorf("restarted %v: %v", restarted, err)
		}
		stop()
		<-served
	}
}

// TestDamagedPlaces: numbers that a run cannot have are one line, and no panic.
func TestDamagedPlaces(t *testing.T) {
	for _, places := range []map[string]int{{"a": 8}, {"a": -1}, {"a": 1, "b": 1}} {
		w := newWorld(t, 5, 1, false)
		w.numbers = places
		expect.Error(t, w.serve(t.Context()), "want 0 to 7, each once: is link.json damaged?")
	}
}

// TestAllRevoked: a server whose agents have all left ends.
func TestAllRevoked(t *testing.T) {
	w := newWorld(t, 5, 1, true)
	w.numbers["a"], w.most = 0, 1
	w.agent("a")
	expect.OK(t, w.keys.Revoke("a"))
	ctx, stop := wholeTest(t)
	defer stop()
	if err := w.serve(ctx); !errors.Is(err, protocol.ErrStuck) {
		t.Error(err)
	}
}
