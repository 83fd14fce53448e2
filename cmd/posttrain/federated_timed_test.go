//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/posttrain/posttrain/federated/link"
	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/federated/quadratic"
)

// timedVar makes the tests of speed and memory run, which want a machine of their own.
const timedVar = "POSTTRAIN_FEDERATED_TIMED"

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
	args := append([]string{"federated", "run", "--workload", "quadratic", "--method", method, "--agents",
		fmt.Sprint(agents), "--set", "quadratic.pause=" + pause.String(), "--set", fmt.Sprint("quadratic.ratio=", ratio),
		"--out", "out"}, length...)
	must(t, args...)
	return measuredRate(t, agents)
}

// measuredRate reads the clock of a run's journal.
func measuredRate(t *testing.T, agents int) float64 {
	t.Helper()
	type line struct {
		Step   int     `json:"step"`
		Time   float64 `json:"time/elapsed"`
		Sample float64 `json:"samples"`
	}
	var first, last line
	seen := 0
	for text := range strings.Lines(read(t, "out/metrics.jsonl")) {
		var l line
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatal(err)
		}
		if seen++; seen == agents*3 || first.Step == 0 && l.Time > 2 {
			first = l
		}
		last = l
	}
	if first.Step == 0 || last.Time <= first.Time {
		t.Fatalf("%d lines: too few to measure", seen)
	}
	return (last.Sample - first.Sample) / (last.Time - first.Time)
}

// TestTimedRates: with times between 1 and 4, AFedPG reaches nine tenths of the sum of the agents' rates, and FedPG
// waits for the slowest. Between equal agents there is nothing to gain.
func TestTimedRates(t *testing.T) {
	if os.Getenv(timedVar) == "" {
		t.Skip("timings: set " + timedVar + "=1 on a machine that is otherwise idle")
	}
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

// TestTimedMemory: a server with 64 agents whose updates have 3.4 MB.
func TestTimedMemory(t *testing.T) {
	if os.Getenv(timedVar) == "" {
		t.Skip("much memory: set " + timedVar + "=1")
	}
	const agents, d = 64, 850_000
	t.Chdir(t.TempDir())
	n := startServer(t, "--method", "afedpg", "--updates", "100", "--agents", fmt.Sprint(agents), "--set",
		fmt.Sprint("quadratic.size=", d))
	ends := make(chan error, agents)
	for i := range agents {
		o := link.AgentOptions{Server: n.url, Name: fmt.Sprint("agent-", i), Dir: "state", Build: largeWorker(d),
			Said: func(string, ...any) {}, Warn: t.Logf}
		go func() { ends <- link.RunAgent(t.Context(), o) }()
	}
	n.end()
	for range agents {
		if err := <-ends; err != nil {
			t.Error(err)
		}
	}
	peak := n.server.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10
	t.Logf("server: %d MB at its peak", peak>>20)
	if most := int64(agents*d*4*3 + 500e6); peak > most {
		t.Errorf("%d bytes, want at most %d", peak, most)
	}
}

// worker sends the same gradient for every task.
type worker struct {
	*quadratic.Workload
	number int
	g      []float64
}

func (w worker) Do(_ context.Context, t protocol.Task) (protocol.Update, error) {
	return protocol.Update{Agent: w.number, Kind: t.Kind, Version: t.Version, Vectors: [][]float64{w.g},
		Stats: protocol.Stats{Steps: 1}}, nil
}

// largeWorker makes workers that share their memory.
func largeWorker(d int) func(int, string) (link.Worker, int, error) {
	o := quadratic.Random(d, 0)
	return func(number int, _ string) (link.Worker, int, error) {
		w, err := quadratic.New(o, number, 0)
		return worker{w, number, o.Start}, d, err
	}
}
