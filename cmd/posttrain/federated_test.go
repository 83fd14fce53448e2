package main

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/posttrain/posttrain/internal/run"
)

// tinyFederated is a run of two agents on a quadratic.
func tinyFederated(command string, more ...string) []string {
	args := []string{"federated", command, "--workload", "quadratic", "--agents", "2", "--set", "quadratic.size=5",
		"--out", "out"}
	return append(args, more...)
}

// spawn are the arguments of a server that starts its agents.
func spawn(more ...string) []string {
	return append([]string{"federated", "server", "--spawn"}, more...)
}

// tinyServed is tinyFederated of a server that starts its agents.
func tinyServed(more ...string) []string {
	return tinyFederated("server", append([]string{"--spawn"}, more...)...)
}

// asAgents makes this test binary the program that posttrain federated server --spawn starts for its agents.
func asAgents(t *testing.T) { t.Setenv(childVar, wholeProgram) }

// TestFederatedRun: a server and the processes of its agents, asynchronous and synchronous.
func TestFederatedRun(t *testing.T) {
	asAgents(t)
	for method, length := range map[string]string{"afedpg": "--updates", "fednpg-admm": "--rounds"} {
		t.Chdir(t.TempDir())
		o := must(t, tinyServed("--method", method, length, "6")...)
		if !strings.Contains(o.out, "(done): version 6") ||
			!strings.Contains(o.err, "agents connect to nats://127.0.0.1:") {
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

// TestFederatedStatusResumed: a server that resumes a run shows the counts of the whole run, whatever its status file
// says.
func TestFederatedStatusResumed(t *testing.T) {
	asAgents(t)
	t.Chdir(t.TempDir())
	must(t, tinyServed("--method", "fedpg", "--rounds", "3")...)
	want := statusOf(t, "out")
	for _, a := range want.Agents {
		a.Seen = time.Time{}
	}
	write(t, "out/status.json", "{")
	must(t, "federated", "server", "--resume", "out", "--set", "spawn=false", "--listen", "127.0.0.1:0")
	got := statusOf(t, "out")
	got.PID, got.Server, got.Written = want.PID, want.Server, want.Written
	if !reflect.DeepEqual(got, want) || got.Agents[0].Updates+got.Agents[1].Updates != 6 {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestNetworkCommands: each says in one line that its standard output takes nothing.
func TestNetworkCommands(t *testing.T) {
	asAgents(t)
	t.Chdir(t.TempDir())
	checkFullOutput(t, tinyServed("--updates", "2"))
	checkFullOutput(t, []string{"federated", "server", "--status", "out"})
	checkFullOutput(t, []string{"federated", "server", "--run", "out", "--invite", "a"})
	if info, err := os.Stat("a.json"); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("credentials: %v, %v", info, err)
	}
}

// TestSecureFederatedRun: agents that send masked updates train as those that send plain ones, and their secrets are in
// no other file of the run.
func TestSecureFederatedRun(t *testing.T) {
	asAgents(t)
	var returns [2][]float64
	for i, set := range []string{"clip=0", "secure=true"} {
		t.Chdir(t.TempDir())
		o := must(t, tinyServed("--method", "fedpg", "--rounds", "3", "--set", set)...)
		records, err := run.ReadMetrics("out/metrics.jsonl")
		if err != nil || len(records) != 3 {
			t.Fatalf("%s: %d records, %v\n%s%s", set, len(records), err, o.out, o.err)
		}
		for _, r := range records {
			returns[i] = append(returns[i], r.Values["return"])
		}
	}
	for k, plain := range returns[0] {
		if math.Abs(returns[1][k]-plain) > 1e-9*math.Abs(plain) {
			t.Errorf("round %d: return %v with secure sums, %v without", k, returns[1][k], plain)
		}
	}
	checkSecrets(t, "out")
}

// checkSecrets fails if a secret of secure sums is in another file, or can be read by others.
func checkSecrets(t *testing.T, dir string) {
	t.Helper()
	var secrets [][]byte
	other := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if d.Name() != "secret" {
			other[path] = content
			return err
		}
		secrets = append(secrets, content)
		if info, err := d.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, %v", path, info.Mode(), err)
		}
		return err
	})
	if err != nil || len(secrets) != 2 {
		t.Fatalf("%d secrets, %v; want one of each agent", len(secrets), err)
	}
	for path, content := range other {
		for _, s := range secrets {
			for _, form := range []string{string(s), hex.EncodeToString(s), base64.StdEncoding.EncodeToString(s)} {
				if bytes.Contains(content, []byte(form)) {
					t.Errorf("%s has a secret", path)
				}
			}
		}
	}
}

// TestFederatedFolders: a run folder of a simulation is no server's, and stays as it was; invitations want a URL.
func TestFederatedFolders(t *testing.T) {
	asAgents(t)
	t.Chdir(t.TempDir())
	must(t, tinyFederated("simulate", "--updates", "2", "--compare", "none")...)
	checkRefusal(t, cli(t, "federated", "server", "--resume", "out"), faultCase{code: 1, says: []string{
		"--resume out", "a run of posttrain federated simulate", "want one of posttrain federated server"}})
	if exists("out/link.json") {
		t.Error("a server has left its files in the folder of a simulation")
	}
	must(t, "federated", "server", "--spawn", "--workload", "quadratic", "--agents", "1", "--updates", "1",
		"--out", "served")
	checkRefusal(t, cli(t, "federated", "server", "--run", "served", "--invite", "a", "--url", "here"),
		faultCase{code: 1, says: []string{`server "here"`, "want a URL"}})
	if exists("a.json") {
		t.Error("refused credentials were written")
	}
	checkRefusal(t, cli(t, simulate("--resume", "served")...), faultCase{code: 1, says: []string{"--resume served",
		"a run of posttrain federated server", "want one of posttrain federated simulate"}})
}

// TestLooseCredentials: a file that others may read is used, with a warning.
func TestLooseCredentials(t *testing.T) {
	asAgents(t)
	t.Chdir(t.TempDir())
	must(t, tinyServed("--updates", "2")...)
	must(t, "federated", "server", "--run", "out", "--invite", "a", "--url", "nats://127.0.0.1:1")
	if err := os.Chmod("a.json", 0o644); err != nil {
		t.Fatal(err)
	}
	o := cli(t, "federated", "client", "--credentials", "a.json", "--agent", "b")
	if !strings.Contains(o.err, "warning: credentials a.json: other users may read") ||
		!strings.Contains(o.last(), "want those of agent") {
		t.Errorf("code %d: %s", o.code, o.err)
	}
}
