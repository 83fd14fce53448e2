package link

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// TestDamagedUpdates: what arrives cut short, too long, of another kind or agent, or not at all, is refused and counted
// by reason; nothing of it is applied. Then the agent itself ends the run.
func TestDamagedUpdates(t *testing.T) {
	const d = 300_000
	w := newWorld(t, d, 2, false)
	w.numbers["a"] = 0
	seen := make(chan *Status, 1)
	from := &outbox{} // of the agent
	cases := []struct {
		name   string
		change func(e *envelope)
		reason string
	}{
		{"a chunk is missing", func(*envelope) { from.blob = from.blob[:len(from.blob)-chunk] }, reasonDamaged},
		{"a chunk is short", func(*envelope) { from.blob = from.blob[:len(from.blob)-1] }, reasonDamaged},
		{"a bit is flipped", func(*envelope) { from.blob[chunk+7] ^= 1 }, reasonDamaged},
		{"no object", func(e *envelope) { e.Object.SHA256 = "other" }, reasonDamaged},
		{"another size", func(e *envelope) { e.Object.Size++ }, reasonDamaged},
		{"an endless size", func(e *envelope) { e.Object.Size = 1 << 60 },
			reasonDamaged},
		{"a negative size", func(e *envelope) { e.Object.Size = -1 },
			reasonDamaged},
		{"another hash", func(e *envelope) {
			e.Object.SHA256 = strings.Repeat("0", 64)
		}, reasonDamaged},
		{"nothing", func(e *envelope) { e.Object = nil }, reasonDamaged},
		{"of another agent", func(e *envelope) {
			e.Object, e.blob = nil, w.update(protocol.Update{Agent: 5, Kind: protocol.Gradient})
		}, reasonForeign},
		{"of another run", func(e *envelope) {
			other := Format{Run: "other", Type: Float32, D: d}
			b := expect.Must(other.EncodeUpdate(protocol.Update{Kind: protocol.Gradient}))(t)
			e.Object, e.blob = nil, b
		}, reasonForeign},
		{"endless steps", func(e *envelope) {
			e.Object, e.blob = nil, w.update(protocol.Update{Kind: protocol.Gradient,
				Stats: protocol.Stats{Steps: 1 << 62}})
		}, reasonDamaged},
		{"too many vectors", func(e *envelope) {
			e.Object, e.blob = nil, w.update(protocol.Update{Kind: protocol.Gradient, Vectors: [][]float64{{1}, {2}, {3}}})
		}, reasonTooLong},
	}
	want := map[string]int{}
	for _, c := range cases {
		want[c.reason]++
	}
	w.onTick = func(s *Status) {
		if s.Refused[reasonDamaged] == want[reasonDamaged] && s.Refused[reasonForeign] == want[reasonForeign] &&
			s.Refused[reasonTooLong] == want[reasonTooLong] {
			select {
			case seen <- s:
			default:
			}
		}
	}
	ctx, stop := wholeTest(t)
	defer stop()
	served := make(chan error, 1)
	go func() { served <- w.serve(ctx) }()
	h := w.rawAgent(w.agent("a"))
	expect.Must(h.nc.Subscribe(instanceOf(subject(w.run, "get", "a"), "x"), from.serveChunk))(t)
	task := h.join()
	for i, c := range cases {
		blob := w.update(protocol.Update{Kind: protocol.Gradient, Vectors: [][]float64{make([]float64, d)}})
		e := &envelope{Op: opUpdate, Key: task.Key, Object: from.put(blob)}
		c.change(e)
		h.send("up", *e)
		waitFor(t, c.name, func() bool { return len(w.refusals()) == i+1 })
		if last := w.refusals()[i]; !strings.Contains(last, "("+c.reason+")") || strings.Contains(last, "\n") {
			t.Errorf("%s: %s, want %s", c.name, last, c.reason)
		}
	}
	h.nc.Publish(subject(w.run, "ask", "a"), []byte("no envelope"))
	h.nc.Close()
	if <-seen; len(w.memory.accepted) != 0 {
		t.Errorf("%d updates", len(w.memory.accepted))
	}
	if err := RunAgent(ctx, w.agent("a")); err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	w.checkApplied()
}

// refusals are the server's lines about refused updates.
func (w *world) refusals() []string {
	return slices.DeleteFunc(w.warnings(), func(line string) bool {
		return !strings.HasPrefix(line, "update of agent")
	})
}

// update encodes an update of the run.
func (w *world) update(u protocol.Update) []byte {
	w.t.Helper()
	b := expect.Must(Format{Run: w.run, Type: Float32, D: w.d}.EncodeUpdate(u))(w.t)
	return b
}

// TestProtocolVersion: an agent of another version is refused with both.
func TestProtocolVersion(t *testing.T) {
	w := newWorld(t, 5, 1, false)
	ctx, stop := wholeTest(t)
	defer stop()
	go w.serve(ctx)
	h := w.rawAgent(w.agent("a"))
	var got *envelope
	waitFor(t, "the server", func() bool {
		h.send("ask", envelope{Op: opHello, Protocol: protocol.Version + 1})
		m, err := h.answers.NextMsg(250 * time.Millisecond)
		if err == nil {
			got = expect.Must(unseal(m, h.run, h.public))(t)
		}
		return err == nil
	})
	if got.Op != opRefuse || got.Reason != "protocol version: found 2, want 1: want the same version of posttrain on "+
		"both sides" {
		t.Errorf("%+v", got)
	}
}

// TestJoinsTwice: an agent whose first greeting was answered late joins twice, and finds its task where the first
// answer says. One that asks for the whole task gets it.
func TestJoinsTwice(t *testing.T) {
	w := newWorld(t, 300_000, 1, false)
	ctx, stop := wholeTest(t)
	defer stop()
	served := make(chan error, 1)
	go func() { served <- w.serve(ctx) }()
	h := w.rawAgent(w.agent("a"))
	first, second := h.join(), h.join()
	whole := h.ask(envelope{Op: opJoin, Identity: h.identity(), Whole: true})
	for whole.Op == opConfig { // the answers to greetings that were sent again
		whole = h.answer()
	}
	if first.Object == nil || second.Object == nil || *first.Object != *second.Object {
		t.Errorf("%+v, then %+v", first.Object, second.Object)
	}
	if whole.Object == nil {
		t.Errorf("%+v, whole %+v", first.Object, whole)
	}
	stop()
	<-served
}

// TestUnsentUpdateIsSentAgain: a process that ends after its update is on the disk and before it is sent does not work
// at it again.
func TestUnsentUpdateIsSentAgain(t *testing.T) {
	for _, d := range []int{5, 300_000} {
		w := newWorld(t, d, 3, false)
		ctx, stop := wholeTest(t)
		defer stop()
		served := make(chan error, 1)
		go func() { served <- w.serve(ctx) }()
		o, done := w.agent("a"), map[int]int{}
		for ctx.Err() == nil {
			life, end := context.WithCancel(ctx)
			o.Build = func(number int, _ string) (Worker, int, error) {
				q, err := newQuad(d, number)
				return &mortal{numbered: numbered{q, number}, done: done, end: end}, d, err
			}
			if err := RunAgent(life, o); err == nil {
				break
			}
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
		w.checkApplied()
		for version := range 3 {
			if done[version] != 1 {
				t.Errorf("d = %d, version %d: done %d times", d, version, done[version])
			}
		}
	}
}

// mortal ends its process when its first update is made.
type mortal struct {
	numbered
	done map[int]int // by version
	end  context.CancelFunc
}

func (m *mortal) Do(ctx context.Context, t protocol.Task) (protocol.Update, error) {
	u, err := m.numbered.Do(ctx, t)
	m.done[t.Version]++
	return u, err
}

// State is called when the update is there, and before it is sent.
func (m *mortal) State() (protocol.State, error) {
	defer m.end()
	return m.numbered.State()
}
