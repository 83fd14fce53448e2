//go:build unix

package main

import (
	"bufio"
	"context"
	"fmt"
	"math"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/posttrain/posttrain/federated/link"
	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/internal/testkit/need"
)

// rateOf is the number of gradients a second that real processes reach, whose work is a pause. The first second or so,
// until all agents are there, does not count.
func rateOf(t *testing.T, method string, agents, gradients int, pause time.Duration, ratio float64) float64 {
	t.Helper()
	asAgents(t)
	t.Chdir(t.TempDir())
	length := []string{"--updates", fmt.Sprint(gradients)}
	if method == "fedpg" {
		length = []string{"--rounds", fmt.Sprint(gradients / agents)}
	}
	args := append(spawn("--workload", "quadratic", "--method", method, "--agents",
		fmt.Sprint(agents), "--set", "quadratic.pause="+pause.String(), "--set",
		fmt.Sprint("quadratic.ratio=", ratio), "--out", "out"), length...)
	must(t, args...)
	per := 1
	if method == "fedpg" {
		per = agents
	}
	return float64(per) * rateBetween(t, "out", max(2, 3*agents/per), gradients/per)
}

// TestTimedRates: with times between 1 and 4, AFedPG reaches nine tenths of the sum of the agents' rates, and FedPG
// waits for the slowest. Between equal agents there is nothing to gain.
func TestTimedRates(t *testing.T) {
	need.Ask(t, "idle")
	const agents, pause = 8, 100 * time.Millisecond
	ideal := 0.0
	for i := range agents {
		ideal += 1 / (pause.Seconds() * math.Pow(4, float64(i)/(agents-1)))
	}
	async := rateOf(t, "afedpg", agents, 1000, pause, 4)
	sync := rateOf(t, "fedpg", agents, 400, pause, 4)
	t.Logf("8 agents, 100 to 400 ms: afedpg %.1f gradients/s, %.2f of the ideal %.1f; fedpg %.1f, at most %.1f", async,
		async/ideal, ideal, sync, agents/(4*pause.Seconds()))
	if async < 0.9*ideal || sync > agents/(4*pause.Seconds()) {
		t.Error("out of bounds")
	}
	async, sync = rateOf(t, "afedpg", 2, 150, pause, 1), rateOf(t, "fedpg", 2, 150, pause, 1)
	t.Logf("2 equal agents: afedpg %.2f gradients/s, fedpg %.2f: speed-up %.3f", async, sync, async/sync)
	if speedUp := async / sync; speedUp < 0.95 || speedUp > 1.1 {
		t.Error("out of bounds")
	}
}

// TestTimedAgentGone: with one of four equal agents gone for ever, the rate falls by its share.
func TestTimedAgentGone(t *testing.T) {
	need.Ask(t, "idle")
	t.Chdir(t.TempDir())
	n := startServer(t, "--method", "afedpg", "--updates", "400", "--agents", "4", "--set", "quadratic.pause=50ms")
	gone := startAgent(t, "--server", n.url, "--agent", "agent-3")
	said, err := gone.StderrPipe()
	if err == nil {
		err = gone.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	wait := n.agents(n.url, "agent-0", "agent-1", "agent-2")
	lines := bufio.NewScanner(said)
	for range 50 {
		lines.Scan()
	}
	gone.Process.Kill()
	gone.Wait()
	n.end()
	wait()
	before, after := rateBetween(t, "run", 40, 180), rateBetween(t, "run", 240, 400)
	t.Logf("%.1f updates/s, then %.1f: %.2f", before, after, after/before)
	if share := after / before; share < 0.68 || share > 0.82 {
		t.Error("want 0.75")
	}
}

// rateBetween is the rate of updates between two versions of a run.
func rateBetween(t *testing.T, dir string, from, to int) float64 {
	t.Helper()
	records, err := run.ReadMetrics(filepath.Join(dir, "metrics.jsonl"))
	if err != nil || len(records) < to {
		t.Fatalf("%d records, %v", len(records), err)
	}
	const clock = "time/elapsed"
	return float64(to-from) / (records[to-1].Values[clock] - records[from-1].Values[clock])
}

// TestTimedMemory: a server with 64 agents whose updates have 3.4 MB.
func TestTimedMemory(t *testing.T) {
	need.Ask(t, "idle")
	const agents, d = 64, 850_000
	t.Chdir(t.TempDir())
	n := startServer(t, "--method", "afedpg", "--updates", "100", "--agents", fmt.Sprint(agents), "--set",
		fmt.Sprint("quadratic.size=", d))
	runWorkers(t, n, agents, d)
	peak := n.server.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10
	t.Logf("server: %d MB at its peak", peak>>20)
	if most := int64(agents*d*4*3 + 500e6); peak > most {
		t.Errorf("%d bytes, want at most %d", peak, most)
	}
}

// runWorkers are agents of this process until the server ends.
func runWorkers(t *testing.T, n *network, agents, d int) {
	t.Helper()
	ends := make(chan error, agents)
	for i := range agents {
		o := link.AgentOptions{Server: n.url, Name: fmt.Sprint("agent-", i), Dir: "state", Build: largeWorker(d),
			Say: func(string, ...any) {}, Warn: t.Logf}
		go func() { ends <- link.RunAgent(t.Context(), o) }()
	}
	n.end()
	for range agents {
		if err := <-ends; err != nil {
			t.Error(err)
		}
	}
}

// TestTimedRounds: rounds of 64 agents whose work takes no time, and whose updates have 3.4 MB, on the loopback.
func TestTimedRounds(t *testing.T) {
	need.Ask(t, "idle")
	const agents, d, rounds = 64, 850_000, 6
	t.Chdir(t.TempDir())
	n := startServer(t, "--method", "fedpg", "--rounds", fmt.Sprint(rounds), "--agents", fmt.Sprint(agents), "--set",
		fmt.Sprint("quadratic.size=", d))
	runWorkers(t, n, agents, d)
	rate := rateBetween(t, "run", 1, rounds)
	t.Logf("a round of 64 agents: %.2f s, %.3f s for an agent", 1/rate, 1/rate/agents)
}

// worker sends the same gradient for every task.
type worker struct {
	protocol.Workload
	number int
	g      []float64
}

func (w worker) Do(_ context.Context, t protocol.Task) (protocol.Update, error) {
	return protocol.Update{Agent: w.number, Kind: t.Kind, Version: t.Version, Vectors: [][]float64{w.g},
		Stats: protocol.Stats{Steps: 1}}, nil
}

func (w worker) Secure([]byte, string)          {}
func (w worker) State() (protocol.State, error) { return protocol.State{}, nil }
func (w worker) Restore(protocol.State) error   { return nil }

// largeWorker makes workers that share their memory.
func largeWorker(d int) func(int, string) (link.Worker, int, error) {
	o := protocol.RandomQuadratic(d, 0)
	return func(number int, _ string) (link.Worker, int, error) {
		return worker{o.Of(number, 0), number, o.Begin}, d, nil
	}
}
