package main

import (
	"os"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/run"
)

// tinyFederated is a run of two agents on a quadratic.
func tinyFederated(command string, more ...string) []string {
	args := []string{"federated", command, "--workload", "quadratic", "--agents", "2", "--set", "quadratic.size=5",
		"--out", "out"}
	return append(args, more...)
}

// asAgents makes this test binary the program that posttrain federated run starts for its agents.
func asAgents(t *testing.T) { t.Setenv(childVar, wholeProgram) }

// TestFederatedRun: a server and the processes of its agents, asynchronous and synchronous.
func TestFederatedRun(t *testing.T) {
	asAgents(t)
	for method, length := range map[string]string{"afedpg": "--updates", "fednpg-admm": "--rounds"} {
		t.Chdir(t.TempDir())
		o := must(t, tinyFederated("run", "--method", method, length, "6")...)
		if !strings.Contains(o.out, "(done): version 6") || !strings.Contains(o.err, "agents connect to nats://127.0.0.1:") {
			t.Errorf("%s: %s%s", method, o.out, o.err)
		}
		records, err := run.ReadMetrics("out/metrics.jsonl")
		if err != nil || len(records) != 6 {
			t.Errorf("%s: %d records, %v", method, len(records), err)
		}
		for _, name := range []string{"curves.png", "summary.txt", "clients/agent-1.log", "checkpoints/step-00000006"} {
			if !exists("out/" + name) {
				t.Errorf("%s: no %s", method, name)
			}
		}
	}
}

// TestNetworkCommands: each says in one line that its standard output takes nothing.
func TestNetworkCommands(t *testing.T) {
	asAgents(t)
	t.Chdir(t.TempDir())
	checkFullOutput(t, tinyFederated("run", "--updates", "2"))
	checkFullOutput(t, []string{"federated", "status", "out"})
	checkFullOutput(t, []string{"federated", "invite", "--run", "out", "--agent", "a"})
	if info, err := os.Stat("a.json"); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("credentials: %v, %v", info, err)
	}
}
