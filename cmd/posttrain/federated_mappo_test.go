//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit"
)

// pairsFile writes n pairs in the working directory, other ones for another first.
func pairsFile(t *testing.T, name string, first, n int) string {
	t.Helper()
	var text strings.Builder
	for i := first; i < first+n; i++ {
		fmt.Fprintf(&text, `{"prompt":"Q%d?","chosen":"yes, %d","rejected":"no","chosen_score":0.9,`+
			`"rejected_score":0.2}`+"\n", i, i)
	}
	write(t, name, text.String())
	path, err := filepath.Abs(name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// pairFlags are the flags of a short run of testkit.CIModel on pairs.
func pairFlags(path string, more ...string) []string {
	return append([]string{"--workload", "mappo", "--seed", "3", "--set", "mappo.model=" + testkit.CIModel(), "--set",
		"mappo.data.train=" + path, "--set", "mappo.train.batch_size=2", "--set", "mappo.validation.every=2"}, more...)
}

// TestFederatedMaPPO: processes with pairs of their own end with the bits of a simulation in the journal's order, and
// status has their validations.
func TestFederatedMaPPO(t *testing.T) {
	asAgents(t)
	t.Chdir(t.TempDir())
	must(t, append(spawn("--agents", "3", "--updates", "5", "--out", "out"),
		pairFlags(pairsFile(t, "pairs.jsonl", 0, 12), "--set", "mappo.data.eval_fraction=0.5")...)...)
	checkSimulated(t, "out")
	checkValidated(t, "out", "accuracy")
	must(t, "generate", "--model", "out/model", "--prompt", "Q?", "--max-new-tokens", "2")
}

// TestFaultsOfPairs: faults while an adapter is trained.
func TestFaultsOfPairs(t *testing.T) {
	asAgents(t)
	t.Chdir(t.TempDir())
	checkFaults(t, pairFlags(pairsFile(t, "pairs.jsonl", 0, 12), "--method", "fedavg", "--rounds", "4", "--agents", "3",
		"--set", "mappo.lora.rank=2")...)
}

// checkFaults: a server that is killed twice, of agents that are processes, ends with the bits of an undisturbed one;
// so do agents that are killed.
func checkFaults(t *testing.T, flags ...string) {
	t.Helper()
	must(t, append(spawn("--out", "run"), flags...)...)
	want := outcomeOf(t, "run")
	t.Run("server", func(t *testing.T) {
		f := newFederation(t)
		f.server = append([]string{"federated", "server", "--out", "run", "--set", "checkpoint_every=2"}, flags...)
		f.startClients()
		f.follow(2, 4_000)
		if got := outcomeOf(t, "run"); got != want {
			t.Errorf("%s, undisturbed %s", got, want)
		}
	})
	t.Run("agents", func(t *testing.T) {
		t.Chdir(t.TempDir())
		n := startServer(t, flags...)
		done, over := make(chan int, 3), make(chan bool)
		for i := range 3 {
			// An agent says up to seven lines of engine and data before it works.
			go func() { done <- killAgain(t, n.url, fmt.Sprintf("agent-%d", i), uint64(i), 10, over) }()
		}
		n.end()
		close(over)
		if kills := <-done + <-done + <-done; kills < 1 {
			t.Errorf("%d kills: want one or more", kills)
		}
		if got := outcomeOf(t, "run"); got != want {
			t.Errorf("%s, undisturbed %s", got, want)
		}
	})
}

// TestOwnersOfPairs: owners train on files of their own, which the server does not have. What travels has no text of
// them.
func TestOwnersOfPairs(t *testing.T) {
	t.Chdir(t.TempDir())
	n := startServer(t, pairFlags("nowhere.jsonl", "--method", "fedavg", "--rounds", "2", "--agents", "2", "--set",
		"mappo.data.eval_fraction=0.25")...)
	var ended []func() error
	for i := range 2 {
		own := pairsFile(t, fmt.Sprintf("own-%d.jsonl", i), 100*(i+1), 8)
		cmd := startAgent(t, "--server", n.url, "--agent", fmt.Sprintf("agent-%d", i), "--quiet", "--data", own)
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended = append(ended, cmd.Wait)
	}
	n.end()
	for i, wait := range ended {
		if err := wait(); err != nil {
			t.Errorf("agent %d: %v", i, err)
		}
	}
	updates, err := filepath.Glob("run/updates/*.bin")
	if err != nil || len(updates) != 4 {
		t.Fatalf("%d updates, %v: want 4", len(updates), err)
	}
	for _, path := range updates {
		head, _, _ := strings.Cut(read(t, path), "\n")
		if strings.Contains(head, "yes") || strings.Contains(head, "own-") || !json.Valid([]byte(head)) {
			t.Errorf("%s begins with %s", path, head)
		}
	}
}
