package link

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// TestRun: updates in envelopes and as objects, with and without keys. Each is applied once, the bytes of numbers are
// as the formula says, and the sockets carry little more.
func TestRun(t *testing.T) {
	for _, c := range []struct {
		name   string
		d      int
		secure bool
	}{
		{"envelopes", 5, false}, {"objects", 300_000, false},
		{"envelopes, keys", 5, true}, {"objects, keys", 300_000, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := runtime.NumGoroutine()
			w := newWorld(t, c.d, 20, c.secure)
			w.finish(w.agent("a-0"), w.agent("a-1"), w.agent("b"))
			w.checkApplied()
			w.checkBytes()
			w.broker.Close()
			if said := w.warnings(); len(said) > 0 {
				t.Errorf("warnings: %q", said)
			}
			waitFor(t, "goroutines to end", func() bool { return runtime.NumGoroutine() <= before })
		})
	}
}

// checkApplied repeats the server's arithmetic.
func (w *world) checkApplied() {
	w.t.Helper()
	q := expect.Must(newQuad(w.d, 0))(w.t)
	again := newSum(q.Start(), w.memory.most)
	for _, u := range w.memory.accepted {
		if r, _, _ := again.Receive(u, nil); !r.Accepted {
			w.t.Fatalf("agent %d, version %d was applied twice", u.Agent, u.Version)
		}
	}
	if len(w.memory.accepted) != w.memory.most || !equal(again.theta, w.memory.theta) {
		w.t.Errorf("%d updates of %d, or another θ", len(w.memory.accepted), w.memory.most)
	}
}

func equal(a, b []float64) bool {
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return len(a) == len(b)
}

// checkBytes compares what the broker has received and sent with d·4 an update and task.
func (w *world) checkBytes() {
	w.t.Helper()
	seen := expect.Must(w.broker.server.Varz(nil))(w.t)
	messages := int64(w.memory.most + 2*len(w.status.Agents)) // and an update and a task of each agent at the end
	most := messages * int64(w.d*4*105/100+8<<10)
	if most *= 2; seen.InBytes > most || seen.OutBytes > most { // updates and tasks
		w.t.Errorf("the broker has received %d bytes and sent %d, want at most %d", seen.InBytes, seen.OutBytes, most)
	}
}

// waitFor polls a condition that no event announces.
func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, stop := wholeTest(t)
	defer stop()
	for !ok() {
		if ctx.Err() != nil {
			buf := make([]byte, 1<<20)
			t.Fatalf("timed out: %s\n%s", what, buf[:runtime.Stack(buf, true)])
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// TestServerRestarts: server and broker end and come back, with the same address. Agents reconnect by themselves, and
// send again what was lost.
func TestServerRestarts(t *testing.T) {
	for _, d := range []int{5, 150_000} {
		w := newWorld(t, d, 40, true)
		ctx, stop := wholeTest(t)
		defer stop()
		agents := []AgentOptions{w.agent("a-0"), w.agent("a-1")}
		ends := make(chan error, 2)
		for _, o := range agents {
			go func() { ends <- RunAgent(ctx, o) }()
		}
		address := strings.TrimPrefix(w.broker.URL(), "tls://")
		for _, until := range []int{10, 25} {
			serving, end := context.WithCancel(ctx)
			w.memory.onStep = func(version int) {
				if version >= until {
					end()
				}
			}
			if err := w.serve(serving); err != context.Canceled {
				t.Fatal(err, w.memory.version, w.warnings())
			}
			w.broker.Close()
			w.startBroker(address)
		}
		w.memory.onStep = nil
		if err := w.serve(ctx); err != nil {
			t.Fatal(err, w.memory.version, w.warnings())
		}
		for range agents {
			if err := <-ends; err != nil {
				t.Error(err)
			}
		}
		w.checkApplied()
	}
}

// TestLostAcknowledgements: a server that ends after an update is durable and before the agent hears of it finds the
// duplicate, and the agent has its next task without waiting for a timer.
func TestLostAcknowledgements(t *testing.T) {
	for _, d := range []int{5, 150_000} {
		w := newWorld(t, d, 12, false)
		w.memory.crash = map[int]bool{1: true, 4: true, 5: true, 9: true}
		ctx, stop := wholeTest(t)
		defer stop()
		ended := make(chan error, 1)
		o := w.agent("a-0")
		o.late = time.Hour // what waits for this timer does not end
		go func() { ended <- RunAgent(ctx, o) }()
		address := strings.TrimPrefix(w.broker.URL(), "nats://")
		for range w.memory.crash {
			if err := w.serve(ctx); err != errCrash {
				t.Fatal(err)
			}
			w.broker.Close()
			w.startBroker(address)
		}
		expect.OK(t, w.serve(ctx))
		if err := <-ended; err != nil {
			t.Error(err)
		}
		w.checkApplied()
	}
}

// TestAgentRestarts: agents are stopped wherever they are, and come back with their memory.
func TestAgentRestarts(t *testing.T) {
	w := newWorld(t, 150_000, 40, false)
	ctx, stop := wholeTest(t)
	defer stop()
	ends := make(chan error, 2)
	for i, o := range []AgentOptions{w.agent("a-0"), w.agent("a-1")} {
		go func() { ends <- rerun(ctx, o, time.Duration(5+i)*3*time.Millisecond) }()
	}
	expect.OK(t, w.serve(ctx))
	stop() // an agent that was away at the end finds no server any more
	for range 2 {
		if err := <-ends; err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	}
	w.checkApplied()
}

// rerun runs an agent again and again, each time a little longer, until the server stops it.
func rerun(ctx context.Context, o AgentOptions, life time.Duration) error {
	for ; ; life += life / 4 {
		limited, stop := context.WithTimeout(ctx, life)
		err := RunAgent(limited, o)
		ended := limited.Err() != nil
		stop()
		if ctx.Err() != nil || !ended {
			return err
		}
	}
}

// TestRefusedUpdateIsDoneAgain: an update that the server refuses is made again, and not sent as it was.
func TestRefusedUpdateIsDoneAgain(t *testing.T) {
	w := newWorld(t, 5, 6, false)
	w.memory.refuse = func(u protocol.Update) bool { return u.Version == 2 && w.memory.refusals < 2 }
	w.finish(w.agent("a-0"))
	w.checkApplied()
	if w.memory.refusals != 2 {
		t.Errorf("%d refusals, want 2", w.memory.refusals)
	}
}

// TestStuck: where every update is refused and no agent gets another task, the run ends with one line, also at the
// agents. While an agent may still come, it waits.
func TestStuck(t *testing.T) {
	w := newWorld(t, 5, 3, false)
	w.most, w.memory.idle = 2, true
	w.memory.refuse = func(protocol.Update) bool { return true }
	ctx, stop := wholeTest(t)
	defer stop()
	served, ends := make(chan error, 1), make(chan error, 2)
	go func() { served <- w.serve(ctx) }()
	first, second := w.agent("a-0"), w.agent("a-1")
	refused := make(chan bool, 1)
	first.Warn = func(format string, args ...any) {
		if strings.Contains(fmt.Sprintf(format, args...), "refused (nonfinite)") {
			refused <- true
		}
	}
	go func() { ends <- RunAgent(ctx, first) }()
	<-refused
	go func() { ends <- RunAgent(ctx, second) }()
	if err := <-served; !errors.Is(err, protocol.ErrStuck) {
		t.Errorf("server: %v", err)
	}
	for range 2 {
		if err := <-ends; err == nil || !strings.Contains(err.Error(), "no agent has work left") {
			t.Errorf("agent: %v", err)
		}
	}
}

// TestManyAgents: 64 agents whose updates travel as objects. Nothing is left running after the end.
func TestManyAgents(t *testing.T) {
	before := runtime.NumGoroutine()
	w := newWorld(t, 140_000, 100, false)
	w.most = 64
	var agents []AgentOptions
	for i := range 64 {
		agents = append(agents, w.agent(fmt.Sprint("agent-", i)))
	}
	w.finish(agents...)
	w.broker.Close()
	w.checkApplied()
	waitFor(t, "goroutines to end", func() bool { return runtime.NumGoroutine() <= before })
}

// TestDeadlineAfterRestart: a server that comes back closes a round whose last agent is gone, though nobody who is left
// has a task.
func TestDeadlineAfterRestart(t *testing.T) {
	w := newWorld(t, 5, 1, false)
	w.numbers["a"], w.deadline = 0, 10*time.Millisecond
	w.memory.late = func() { w.memory.version = w.memory.most }
	ctx, stop := wholeTest(t)
	defer stop()
	if err := w.serve(ctx); err != nil {
		t.Error(err)
	}
}
