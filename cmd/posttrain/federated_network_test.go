package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/run"
)

// networkFaults are refused before anything is written.
func networkFaults(t *testing.T) []faultCase {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { taken.Close() })
	server := func(more ...string) []string { return append([]string{"federated", "server", "--out", "out"}, more...) }
	client := func(more ...string) []string { return append([]string{"federated", "client"}, more...) }
	invite := func(more ...string) []string { return append([]string{"federated", "server"}, more...) }
	return []faultCase{
		{"no port", nil, server("--listen", "127.0.0.1"), 1, []string{`listen "127.0.0.1"`, "an address and a port"},
			nil},
		{"no such port", nil, server("--listen", "127.0.0.1:70000"), 1, []string{"127.0.0.1:70000", "and a port"}, nil},
		{"address of others", nil, server("--listen", "192.0.2.1:4222"), 1,
			[]string{"listen 192.0.2.1:4222", "address"}, nil},
		{"address that is taken", nil, server("--listen", taken.Addr().String()), 1,
			[]string{"listen " + taken.Addr().String(), "address already in use", "want another port"}, nil},
		{"open to others without TLS", nil, server("--listen", "0.0.0.0:0", "--tls", "off"), 1,
			[]string{"listen 0.0.0.0:0, tls off", "needs TLS", "127.0.0.1:4222"}, nil},
		{"unknown TLS", nil, server("--tls", "maybe"), 2, []string{"--tls", `"maybe"`, "auto, on or off"}, nil},
		{"no agents", nil, server("--agents", "0"), 2, []string{"--agents", "agents 0", "1 or more"}, nil},
		{"server without a run to resume", nil, []string{"federated", "server", "--resume", "out"}, 1,
			[]string{"--resume out", "there is no run in it"}, nil},

		{"no server", nil, client("--agent", "a"), 1, []string{"--server is missing", "--credentials FILE"}, nil},
		{"no name", nil, client("--server", "nats://127.0.0.1:1"), 1, []string{"--agent is missing"}, nil},
		{"bad name", nil, client("--server", "nats://127.0.0.1:1", "--agent", "a b"), 1, []string{`agent "a b"`,
			"1 to 32 letters, digits, - or _"}, nil},
		{"no URL", nil, client("--server", "localhost", "--agent", "a"), 1,
			[]string{`server "localhost"`, "want a URL"}, nil},
		{"secret in the URL", nil, client("--server", "nats://a:secret@127.0.0.1:1", "--agent", "a"), 1,
			[]string{"the URL has a name or password in it", "want credentials in a file"}, nil},
		{"another machine without TLS", nil, client("--server", "nats://192.0.2.1:4222", "--agent", "a"), 1,
			[]string{"192.0.2.1", "needs TLS", "--credentials FILE"}, nil},
		{"no data", nil, client("--server", "nats://127.0.0.1:1", "--agent", "a", "--data", "x.jsonl"), 1,
			[]string{"--data x.jsonl", "no such file"}, nil},
		{"no credentials", nil, client("--credentials", "a.json"), 1, []string{"a.json", "no such file"}, nil},
		{"other credentials",
			withFile("a.json", `{"seed": "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"}`),
			client("--credentials", "a.json"), 1,
			[]string{"a.json", "want the file that posttrain federated server --invite wrote"}, nil},
		{"credentials that are a folder", nil, client("--credentials", "."), 1, []string{"want the file that"}, nil},

		{"invitation to nowhere", nil, invite("--invite", "a"), 2, []string{"--run is missing"}, nil},
		{"invitation of nobody", nil, invite("--run", "out"), 2, []string{"want --invite NAME or --revoke NAME"}, nil},
		{"both at once", nil, invite("--run", "out", "--invite", "a", "--revoke", "b"), 2,
			[]string{"--invite: --revoke has no use for it: remove it"}, nil},
		{"an address to revoke", nil, invite("--run", "out", "--revoke", "b", "--url", "tls://a:1"), 2,
			[]string{"--url: --revoke has no use for it: remove it"}, nil},
		{"status of a new run", nil, []string{"federated", "server", "--status", ".", "--agents", "2"}, 2,
			[]string{"--agents: --status has no use for it: remove it"}, nil},
		{"invitation to another folder", nil, invite("--run", ".", "--invite", "a"), 1, []string{"link.json",
			"want the folder of a run that posttrain federated server has started"}, nil},
		{"status of another folder", nil, []string{"federated", "server", "--status", "."}, 1, []string{"status.json",
			"want the folder of a federated run"}, nil},
	}
}

func TestNetworkFaults(t *testing.T) {
	refuseAll(t, func(t *testing.T) { t.Chdir(t.TempDir()) }, networkFaults(t))
}

// TestFederatedInterrupted: Ctrl-C ends server and agents, and the run continues.
func TestFederatedInterrupted(t *testing.T) {
	asAgents(t)
	t.Chdir(t.TempDir())
	o := cliUntil(t, "round 4/", tinyServed("--method", "fedpg", "--rounds", "30", "--set",
		"quadratic.pause=10ms")...)
	if o.code != exitInterrupted || !strings.Contains(o.last(), "continue with posttrain federated server --resume out") {
		t.Fatalf("exit code %d: %s", o.code, o.err)
	}
	checkAgentsEnded(t, "out")
	o = must(t, "federated", "server", "--resume", "out")
	if !strings.Contains(o.err, "continuing after version") || !strings.Contains(o.out, "version 30") {
		t.Errorf("%s%s", o.out, o.err)
	}
	checkAgentsEnded(t, "out")
}

// checkAgentsEnded fails where a process still has the lock of an agent's state.
func checkAgentsEnded(t *testing.T, dir string) {
	t.Helper()
	locks, err := filepath.Glob(filepath.Join(dir, "clients", "*", "lock"))
	if err != nil || len(locks) != 2 {
		t.Fatalf("%q, %v: want the locks of two agents", locks, err)
	}
	for _, path := range locks {
		if !isFree(t, path) {
			t.Errorf("%s is held: its agent still runs", path)
		}
	}
}

func isFree(t *testing.T, path string) bool {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return run.Lock(f) == nil
}
