//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/posttrain/posttrain/federated/link"
	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe/federated"
)

// killsVar is how often TestFaultsServerKilled kills each server, for scripts/federated/chaos.sh; 4 without it.
const killsVar = "POSTTRAIN_FEDERATED_KILLS"

func kills(t *testing.T) int {
	n, err := strconv.Atoi(os.Getenv(killsVar))
	if os.Getenv(killsVar) == "" {
		return 4
	}
	if err != nil || n < 1 {
		t.Fatalf("%s=%q: want a number of kills", killsVar, os.Getenv(killsVar))
	}
	return n
}

// federation is a server and three clients, each a process of its own.
type federation struct {
	t       *testing.T
	listen  string
	server  []string // flags of its first start
	clients []*exec.Cmd
	logs    []*bytes.Buffer
}

func newFederation(t *testing.T, server ...string) *federation {
	t.Helper()
	t.Chdir(t.TempDir())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return &federation{t: t, listen: l.Addr().String(), server: append([]string{"federated", "server", "--agents", "3",
		"--workload", "quadratic", "--set", "quadratic.size=6", "--set", "quadratic.pause=10ms", "--out", "run"},
		server...)}
}

// program makes a process of this program.
func program(args ...string) (cmd *exec.Cmd, log *bytes.Buffer) {
	log = new(bytes.Buffer)
	cmd = exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), childVar+"="+wholeProgram)
	cmd.Stdout, cmd.Stderr = log, log
	return cmd, log
}

// startClients starts the clients. They end with this process, whatever happens to it.
func (f *federation) startClients() {
	f.t.Helper()
	for i := range 3 {
		cmd, log := program("federated", "client", "--server", "nats://"+f.listen, "--agent", fmt.Sprint("agent-", i),
			"--state", fmt.Sprint("client-", i), "--until-eof")
		in, err := cmd.StdinPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			f.t.Fatal(err)
		}
		f.t.Cleanup(func() { in.Close() })
		f.clients, f.logs = append(f.clients, cmd), append(f.logs, log)
	}
}

// serve runs the server to the end of the run, or until the journal has that many bytes: then it is killed.
func (f *federation) serve(until int64) (killed bool) {
	f.t.Helper()
	args := f.server
	if exists("run/config.yaml") {
		args = []string{"federated", "server", "--resume", "run"}
	}
	cmd, log := program(append(args, "--listen", f.listen)...)
	if err := cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for {
		select {
		case err := <-ended:
			if err != nil && !killed {
				f.t.Fatalf("server: %v: %s", err, log)
			}
			return killed
		case <-look.C:
			if info, err := os.Stat("run/journal.jsonl"); err == nil && info.Size() >= until && !killed {
				killed = cmd.Process.Kill() == nil
			}
		}
	}
}

// follow runs the server to its end through n kills at random places of a journal of about that many bytes, and waits
// for the clients.
func (f *federation) follow(n int, size int64) {
	f.t.Helper()
	rng := rand.New(rand.NewPCG(3, uint64(size)))
	at := make([]int64, n)
	for i := range at {
		at[i] = rng.Int64N(size)
	}
	slices.Sort(at)
	for _, until := range at {
		if !f.serve(until) {
			f.t.Fatalf("the run ended before its journal had %d bytes", until)
		}
	}
	f.serve(1 << 62)
	for i, c := range f.clients {
		if err := c.Wait(); err != nil {
			f.t.Errorf("client %d: %v: %s", i, err, f.logs[i])
		}
	}
}

// replay gives the whole journal of a run folder to a new server, and compares every checkpoint with it. It returns the
// version and the hash of the parameters at the end, and the accepted updates, of which none may come twice.
func replay(t *testing.T, dir string) (version int, params string, accepted int) {
	t.Helper()
	o, err := federated.ServerSpec.Load(config.Input{Path: filepath.Join(dir, "config.yaml")})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	server, _, err := o.NewServer()
	if err != nil {
		t.Fatal(err)
	}
	due, seen := map[int]string{}, map[string]bool{}
	paths, err := filepath.Glob(filepath.Join(dir, "checkpoints", "*", "snapshot.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		s := decode[struct {
			Event  int
			Params string
		}](t, path)
		due[s.Event] = s.Params
	}
	bare := filepath.Join(t.TempDir(), "bare")
	if err := errors.Join(os.CopyFS(bare, os.DirFS(dir)), os.RemoveAll(filepath.Join(bare, "checkpoints"))); err != nil {
		t.Fatal(err)
	}
	folder, err := run.Open(bare)
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	form := link.Format{Run: decode[struct{ Run string }](t, filepath.Join(dir, "link.json")).Run, Type: link.Type(o.Wire),
		D: len(server.Params())}
	_, err = link.OpenJournal(folder, server, link.JournalOptions{Format: form,
		Observe: func(e link.Event, r protocol.Receipt) error {
			if update := fmt.Sprint(e.Kind, e.Agent, e.Version); r.Accepted {
				if accepted++; seen[update] {
					t.Errorf("update %s is accepted twice", update)
				}
				seen[update] = true
			}
			if want, ok := due[e.N]; ok && want != link.Hash(server.Params()) {
				return fmt.Errorf("the checkpoint of event %d has other parameters", e.N)
			}
			delete(due, e.N)
			return nil
		}})
	if err != nil || len(due) > 0 || len(paths) == 0 {
		t.Fatalf("%v; %d of %d checkpoints are of events that the journal lacks", err, len(due), len(paths))
	}
	return server.Version(), link.Hash(server.Params()), accepted
}

// decode reads a file of JSON.
func decode[T any](t *testing.T, path string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(read(t, path)), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// TestFaultsServerKilled: a server that is killed with SIGKILL again and again ends its run. A replay gives the bits of
// every checkpoint, the last one too, no update is accepted twice, and none that was accepted is missing: rounds end in
// the parameters of a run that nobody disturbed.
func TestFaultsServerKilled(t *testing.T) {
	t.Run("afedpg", func(t *testing.T) {
		f := newFederation(t, "--method", "afedpg", "--updates", "200", "--set", "checkpoint_every=20", "--set",
			"checkpoint_keep=100")
		f.startClients()
		f.follow(kills(t), 25_000)
		if version, _, accepted := replay(t, "run"); version != 200 || accepted != 200 {
			t.Errorf("version %d, %d accepted", version, accepted)
		}
		updates := 0
		for _, a := range statusOf(t, "run").Agents {
			if updates += a.Updates; a.Updates == 0 || a.Up < int64(a.Updates)*6*4 || a.Down < a.Up {
				t.Errorf("status: %+v", a)
			}
		}
		if updates != 200 {
			t.Errorf("status: %d updates", updates)
		}
	})
	t.Run("fednpg-admm", func(t *testing.T) {
		flags := []string{"--method", "fednpg-admm", "--rounds", "30", "--set", "checkpoint_every=20", "--set",
			"checkpoint_keep=100", "--set", "line_search=on"}
		whole := newFederation(t, flags...)
		whole.startClients()
		whole.serve(1 << 62)
		_, want, _ := replay(t, "run")
		f := newFederation(t, flags...)
		f.startClients()
		f.follow(kills(t), 25_000)
		version, params, accepted := replay(t, "run")
		if version != 30 || accepted != 2*3*30 || params != want {
			t.Errorf("version %d, %d accepted, parameters %.12s, want %.12s", version, accepted, params, want)
		}
	})
}

// TestFaultsRefusedFolders: a server that cannot work in a folder says why in one line, and changes nothing.
func TestFaultsRefusedFolders(t *testing.T) {
	f := newFederation(t, "--method", "afedpg", "--updates", "200")
	f.startClients()
	first, _ := program(append(f.server, "--listen", f.listen)...)
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for info, err := os.Stat("run/journal.jsonl"); err != nil || info.Size() < 2000; <-look.C {
		info, err = os.Stat("run/journal.jsonl")
	}
	resume := []string{"federated", "server", "--resume", "run", "--listen", "127.0.0.1:0"}
	refused := func(says string, more ...string) {
		t.Helper()
		if o := cli(t, append(resume, more...)...); o.code != 1 || !strings.HasPrefix(o.err, "posttrain: ") ||
			!regexp.MustCompile(says).MatchString(o.err) || strings.Count(o.err, "\n") != 1 {
			t.Errorf("exit code %d: %s, want one line with %q", o.code, o.err, says)
		}
	}
	refused(fmt.Sprintf("run folder run is in use by process %d: wait for it to end", first.Process.Pid))
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait()
	before := read(t, "run/journal.jsonl")
	refused("(with 6 parameters of type float32, want|config has changed .*size)", "--set", "quadratic.size=7")
	refused("(of type float32, want|config has changed .*wire)", "--set", "wire=float64")
	l, err := net.Listen("tcp", f.listen)
	if err != nil {
		t.Fatal(err)
	}
	refused("address already in use", "--listen", f.listen)
	l.Close()
	if read(t, "run/journal.jsonl") != before {
		t.Error("the journal has changed")
	}
	f.serve(1 << 62)
	if version, _, _ := replay(t, "run"); version != 200 {
		t.Errorf("version %d at the end", version)
	}
}

// TestFaultsDiskFull: a server whose files do not fit ends with one line that names the file. With room it continues.
func TestFaultsDiskFull(t *testing.T) {
	f := newFederation(t, "--method", "afedpg", "--updates", "100", "--set", "quadratic.pause=1ms")
	f.startClients()
	small := startProgram(t, "", "ulimit -f 32; ", append(f.server, "--listen", f.listen)...)
	log, err := io.ReadAll(small.err)
	if err != nil {
		t.Fatal(err)
	}
	_ = small.Wait()
	lines := strings.Split(strings.TrimRight(string(log), "\n"), "\n")
	want := regexp.MustCompile(`^posttrain: (run/(metrics|journal)\.jsonl cannot be written): file too large$`)
	if last := lines[len(lines)-1]; small.ProcessState.ExitCode() != 1 || !want.MatchString(last) {
		t.Errorf("exit code %d: %s", small.ProcessState.ExitCode(), log)
	}
	if !strings.HasSuffix(read(t, "run/journal.jsonl"), "\n") {
		t.Error("half a line is left in the journal")
	}
	f.serve(1 << 62)
	if version, _, accepted := replay(t, "run"); version != 100 || accepted != 100 {
		t.Errorf("version %d, %d accepted", version, accepted)
	}
}
