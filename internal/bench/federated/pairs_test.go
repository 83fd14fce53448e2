package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/federated/protocol"
)

// TestPairing: a small comparison gives its table, and a second time from the file alone. What was learnt differs from
// the start.
func TestPairing(t *testing.T) {
	var pairs bytes.Buffer
	for i := range 40 {
		fmt.Fprintf(&pairs, `{"prompt":"%d?","chosen":"yes","rejected":"no","chosen_score":1,"rejected_score":0}`+"\n", i)
	}
	path := filepath.Join(t.TempDir(), "pairs.jsonl")
	if err := os.WriteFile(path, pairs.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	p := pairing{Agents: 2, Budget: 64, Seeds: 1, Arms: []string{before, alone, protocol.FedAvg},
		Runs: filepath.Join(t.TempDir(), "runs.jsonl"), Setting: []string{"mappo.backend=go", "mappo.data.train=" + path}}
	var first, second, progress bytes.Buffer
	if err := p.measure(t.Context(), &first, io.Discard); err != nil {
		t.Fatal(err)
	}
	if err := p.measure(t.Context(), &second, &progress); err != nil {
		t.Fatal(err)
	}
	if first.String() != second.String() || progress.Len() > 0 {
		t.Errorf("%s\nand from the file\n%s%s", &first, &second, &progress)
	}
	losses := map[string]bool{}
	for line := range strings.Lines(first.String()) {
		if cells := strings.Split(line, " | "); len(cells) == 7 && cells[1] != "loss" {
			losses[cells[1]] = true
		}
	}
	if len(losses) != len(p.Arms) {
		t.Errorf("the arms' losses are %v:\n%s", losses, &first)
	}
}

// TestPairingSettings: every arm's settings are a run's, and all arms see the same number of pairs.
func TestPairingSettings(t *testing.T) {
	p := pairing{Agents: 8, Budget: 512, Arms: pairArms}
	for _, arm := range p.Arms {
		o, err := settled(p.settings(pairRun{arm, 1})...)
		if err != nil {
			t.Fatalf("%s: %v", arm, err)
		}
		seen := o.MaPPO.Train.Size
		switch {
		case o.Rounds != nil:
			seen *= *o.Rounds * o.Agents
		case arm == alone:
			seen *= *o.Updates * o.Agents
		default:
			seen *= *o.Updates
		}
		if seen != p.Budget {
			t.Errorf("%s sees %d pairs, want %d", arm, seen, p.Budget)
		}
	}
	if err := comparePairs(t.Context(), []string{"--pairs", "100"}); err == nil {
		t.Error("100 pairs are accepted")
	}
	if err := comparePairs(t.Context(), []string{"--agents", "0"}); err == nil {
		t.Error("0 owners are accepted")
	}
}
