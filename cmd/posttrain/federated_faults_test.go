//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/posttrain/posttrain/federated/link"
)

// network is a server in a process of its own, for agents in processes of their own.
type network struct {
	t      *testing.T
	server *process
	url    string
	log    chan string // the rest of the server's standard error, at its end
}

// startServer starts a server in the folder run of the working directory.
func startServer(t *testing.T, flags ...string) *network {
	t.Helper()
	args := append([]string{"federated", "server", "--workload", "quadratic", "--listen", "127.0.0.1:0", "--out",
		"run"}, flags...)
	n := &network{t: t, server: startProgram(t, "", "", args...), log: make(chan string, 1)}
	t.Cleanup(func() { n.server.Process.Kill() })
	for n.server.lines.Scan() {
		if _, url, ok := strings.Cut(n.server.lines.Text(), "agents connect to "); ok {
			n.url = url
			break
		}
	}
	if n.url == "" {
		n.server.Wait()
		t.Fatal("the server has not started")
	}
	go func() {
		var all strings.Builder
		for n.server.lines.Scan() {
			all.WriteString(n.server.lines.Text() + "\n")
		}
		n.log <- all.String()
	}()
	return n
}

// end waits for the server's end.
func (n *network) end() (log string) {
	n.t.Helper()
	log = <-n.log
	if err := n.server.Wait(); err != nil {
		n.t.Fatalf("server: %v\n%s", err, log)
	}
	return log
}

// startAgent starts an agent that ends with this process.
func startAgent(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	args = append([]string{"federated", "client", "--until-eof", "--state", "state"}, args...)
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), childVar+"="+wholeProgram)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	return cmd
}

// agents runs agents to the end of the run.
func (n *network) agents(url string, names ...string) (wait func()) {
	n.t.Helper()
	var all []*exec.Cmd
	for _, name := range names {
		cmd := startAgent(n.t, "--server", url, "--agent", name, "--quiet")
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			n.t.Fatal(err)
		}
		all = append(all, cmd)
	}
	return func() {
		for _, cmd := range all {
			if err := cmd.Wait(); err != nil {
				n.t.Errorf("%s: %v", cmd.Args, err)
			}
		}
	}
}

// outcomeOf replays a run, and returns version and SHA-256 of the parameters.
func outcomeOf(t *testing.T, dir string) string {
	t.Helper()
	version, params, _ := replay(t, dir)
	return fmt.Sprint(version, " ", params)
}

// synchronous is a run whose bits no disturbance may change: every agent takes part in every round.
var synchronous = []string{"--method", "fednpg-admm", "--rounds", "6", "--agents", "2", "--set", "quadratic.size=9"}

// undisturbed is the outcome of the synchronous run.
func undisturbed(t *testing.T) string {
	t.Helper()
	asAgents(t)
	t.Chdir(t.TempDir())
	args := append(spawn("--workload", "quadratic", "--out", "run"), synchronous...)
	must(t, args...)
	return outcomeOf(t, "run")
}

func statusOf(t *testing.T, dir string) (s link.Status) {
	t.Helper()
	if err := json.Unmarshal([]byte(read(t, filepath.Join(dir, "status.json"))), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestFaultsClientsKilled: agents are killed with SIGKILL at random moments, and start again with what is on their
// disk. The run ends with the bits of an undisturbed one.
func TestFaultsClientsKilled(t *testing.T) {
	want := undisturbed(t)
	t.Chdir(t.TempDir())
	n := startServer(t, append(synchronous, "--set", "quadratic.pause=10ms")...)
	done, over := make(chan int, 2), make(chan bool)
	for i, name := range []string{"agent-0", "agent-1"} {
		go func() { done <- killAgain(t, n.url, name, uint64(i), 4, over) }()
	}
	n.end()
	close(over)
	if kills := <-done + <-done; kills < 4 {
		t.Errorf("%d kills: want 4 or more", kills)
	}
	if got := outcomeOf(t, "run"); got != want {
		t.Errorf("%s, undisturbed %s", got, want)
	}
}

// killAgain starts an agent again and again, and kills it a random time after less than most of its lines, until it
// ends by itself or the server has ended.
func killAgain(t *testing.T, url, name string, seed uint64, most int, over <-chan bool) (kills int) {
	rng := rand.New(rand.NewPCG(seed, 13))
	for {
		cmd := startAgent(t, "--server", url, "--agent", name)
		said, err := cmd.StderrPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Error(err)
			return kills
		}
		ended := make(chan error, 1)
		enough := make(chan bool, 1)
		left := rng.IntN(most)
		go func() {
			for lines := bufio.NewScanner(said); ; left-- {
				if left == 0 {
					enough <- true
				}
				if !lines.Scan() {
					break
				}
			}
			ended <- cmd.Wait()
		}()
		select {
		case <-enough:
			select {
			case <-time.After(time.Duration(rng.IntN(60_000)) * time.Microsecond):
			case <-over:
			case err := <-ended:
				ended <- err
			}
		case <-over:
		case err := <-ended:
			ended <- err
		}
		cmd.Process.Kill()
		if err := <-ended; err == nil {
			return kills // the server has stopped it
		} else if !strings.Contains(err.Error(), "killed") {
			t.Errorf("%s: %v", name, err)
			return kills
		}
		kills++
		select {
		case <-over:
			return kills
		default:
		}
	}
}

// TestFaultsAgentGone: with an agent gone for ever, rounds close by quorum after the deadline, and an asynchronous run
// continues with the others.
func TestFaultsAgentGone(t *testing.T) {
	for _, flags := range [][]string{
		{"--method", "fedpg", "--rounds", "6", "--set", "quorum=0.5", "--set", "deadline=100ms"},
		{"--method", "fednpg-admm", "--rounds", "6", "--set", "quorum=0.5", "--set", "deadline=100ms"},
		{"--method", "afedpg", "--updates", "20"},
	} {
		t.Chdir(t.TempDir())
		n := startServer(t, append(flags, "--agents", "3")...)
		gone := startAgent(t, "--server", n.url, "--agent", "agent-2")
		said, err := gone.StderrPipe()
		if err == nil {
			err = gone.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		bufio.NewScanner(said).Scan() // its first update is in
		wait := n.agents(n.url, "agent-0", "agent-1")
		gone.Process.Kill()
		gone.Wait()
		n.end()
		wait()
		if s := statusOf(t, "run"); !s.Done {
			t.Errorf("%s: %+v", flags[1], s)
		}
		outcomeOf(t, "run")
	}
}

// TestFaultsOrphans: agents of posttrain federated server --spawn end with it, even if it is killed.
func TestFaultsOrphans(t *testing.T) {
	t.Chdir(t.TempDir())
	p := startProgram(t, "", "", tinyServed("--method", "fedpg", "--rounds", "4000")...)
	p.until(t, "round 200/")
	p.Process.Kill()
	p.end()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		locks, err := filepath.Glob("out/clients/*/lock")
		if err != nil || len(locks) != 2 {
			t.Fatalf("%q, %v", locks, err)
		}
		if isFree(t, locks[0]) && isFree(t, locks[1]) {
			return
		}
		if time.Now().After(end) {
			t.Fatal("an agent still runs")
		}
	}
}

// TestFaultsProxy: messages are delayed, doubled, swapped, cut and damaged on their way. Damage is found by the hash
// and counted as often as it was done, and the run ends with the bits of an undisturbed one.
func TestFaultsProxy(t *testing.T) {
	want := undisturbed(t)
	for name, h := range map[string]harm{
		"flips":  {flip: 0.3, most: 6},
		"others": {double: 0.1, swap: 0.1, cut: 0.02, delay: 0.2, most: 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			n := startServer(t, synchronous...)
			p := newProxy(t, strings.TrimPrefix(n.url, "nats://"), 1, h)
			wait := n.agents("nats://"+p.address(), "agent-0", "agent-1")
			log := n.end()
			wait()
			if got := outcomeOf(t, "run"); got != want {
				t.Errorf("%s, undisturbed %s; faults %s\n%s", got, want, p.counts(), log)
			}
			if s := statusOf(t, "run"); s.Refused["damaged"] != p.count("flip") {
				t.Errorf("refused %v, faults %s", s.Refused, p.counts())
			}
			t.Log(p.counts())
		})
	}
}

// TestFaultsTLS: flips and cuts of a connection with TLS end it, and the agents make another.
func TestFaultsTLS(t *testing.T) {
	want := undisturbed(t)
	t.Chdir(t.TempDir())
	n := startServer(t, append(synchronous, "--tls", "on")...)
	p := newProxy(t, strings.TrimPrefix(n.url, "tls://"), 1, harm{})
	p.raw = 40
	var all []*exec.Cmd
	for _, name := range []string{"agent-0", "agent-1"} {
		must(t, "federated", "server", "--run", "run", "--invite", name, "--url", "tls://"+p.address())
		cmd := startAgent(t, "--credentials", name+".json")
		log, err := os.Create(name + ".log")
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		cmd.Stderr = log
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		all = append(all, cmd)
	}
	log := n.end()
	for i, cmd := range all {
		if err := cmd.Wait(); err != nil {
			said, _ := os.ReadFile(fmt.Sprintf("agent-%d.log", i))
			t.Errorf("%v\n%s", err, said)
		}
	}
	if got := outcomeOf(t, "run"); got != want || p.count("flip") == 0 {
		t.Errorf("%s, undisturbed %s; faults %s\n%s", got, want, p.counts(), log)
	}
	write(t, "server.log", log)
	noSecret(t, "agent-0.json", "agent-1.json", "run/keys/server.seed", "run/keys/server.key")
}

// noSecret looks for the secrets of files in all other files of the working directory: run folder, logs and states.
func noSecret(t *testing.T, secret ...string) {
	t.Helper()
	var secrets []string
	for _, path := range secret {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v: want mode 0600", path, info.Mode(), err)
		}
		found := regexp.MustCompile(`SU[A-Z2-7]{56}|(?m)^[A-Za-z0-9+/]{40,}$`).FindAllString(read(t, path), -1)
		if len(found) == 0 {
			t.Errorf("no secret in %s", path)
		}
		secrets = append(secrets, found...)
	}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text := read(t, path)
		for i, s := range secrets {
			if strings.Contains(text, s) && !containsPath(secret, path) {
				t.Errorf("secret %d is in %s", i, path)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func containsPath(all []string, path string) bool {
	for _, p := range all {
		if filepath.Clean(p) == path {
			return true
		}
	}
	return false
}
