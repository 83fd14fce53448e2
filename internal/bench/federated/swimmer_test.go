package main

import (
	"bytes"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/federated"
	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/internal/mujoco"
	"github.com/posttrain/posttrain/internal/testkit/need"
)

// needMuJoCo ends a test where MuJoCo is not installed.
func needMuJoCo(t *testing.T) {
	t.Helper()
	if _, err := mujoco.Find(); err != nil {
		need.Lack(t, "mujoco", err.Error())
	}
}

// TestSwimming: a small E1 and E2 give their tables, and a second time from the file alone.
func TestSwimming(t *testing.T) {
	needMuJoCo(t)
	dir := t.TempDir()
	s := schooling{Task: "swimmer", Rounds: 1, Seeds: 2, Agents: []int{1}, Runs: filepath.Join(dir, "runs.jsonl"),
		steps: 1000}
	for name, experiment := range map[string]experiment{"e1": sizes, "e2": selection} {
		var first, second, progress bytes.Buffer
		s.Curves = filepath.Join(dir, name+".png")
		if err := s.measure(t.Context(), &first, io.Discard, experiment); err != nil {
			t.Fatal(err)
		}
		if err := s.measure(t.Context(), &second, &progress, experiment); err != nil {
			t.Fatal(err)
		}
		if first.String() != second.String() || progress.Len() > 0 || !strings.Contains(first.String(), " ± ") {
			t.Errorf("%s: %s\nand from the file\n%s%s", name, &first, &second, &progress)
		}
		if _, err := os.Stat(s.Curves); err != nil {
			t.Error(err)
		}
	}
	if s.Rounds++; s.measure(t.Context(), io.Discard, io.Discard, sizes) == nil {
		t.Error("runs of another length are accepted")
	}
}

// TestTrialOptions: the policies have the papers' sizes, and the options are a run's.
func TestTrialOptions(t *testing.T) {
	for task, want := range map[string]int{"swimmer": 4868, "hopper": 18438} {
		for _, method := range []string{protocol.FedNPG, protocol.FedNPGADMM, protocol.FedPPO} {
			o := trial{Task: task, Method: method, Agents: 2, Select: 0.5}.options(3)
			server, identity, err := o.NewServer()
			if err != nil {
				t.Fatal(err)
			}
			if n := len(server.Params()); n != want {
				t.Errorf("%s: %d parameters, want %d: %+v", identity.Task, n, want, identity.Tensors)
			}
			if faults := o.Options.Check(); len(faults) > 0 {
				t.Error(faults)
			}
		}
	}
}

// TestUndamped: of the trials, fednpg-admm's alone lose their damping.
func TestUndamped(t *testing.T) {
	trials, _ := sizes(schooling{Task: "swimmer", Seeds: 1, Agents: []int{2}, Undamped: true})
	want := map[string]float64{protocol.FedNPG: 0.1, protocol.FedNPGADMM: 0}
	for _, x := range trials {
		if d := x.options(3).Damping; d != nil && *d != want[x.Method] {
			t.Errorf("%s: damping %v, want %v", x.Method, *d, want[x.Method])
		}
	}
	if o := (trial{Task: "swimmer", Method: protocol.FedNPGADMM, Agents: 2, Select: 1}).options(3); *o.Damping != 0.1 {
		t.Errorf("damping %v, want 0.1", *o.Damping)
	}
}

// TestWindows: 3 bytes at 0, 4 at 1.5 and 5 at 2 are 3, 4 in windows of a second; the last is not full.
func TestWindows(t *testing.T) {
	all := []crossing{{0, 0, 3}, {1.5, 1, 4}, {2, 0, 5}}
	if got := windows(all, 1, -1); len(got) != 2 || got[0] != 3 || got[1] != 4 {
		t.Error(got)
	}
	if got := windows(all, 1, 0); len(got) != 2 || got[0] != 3 || got[1] != 0 {
		t.Error(got)
	}
}

// TestTraffic: the bytes that E5 sees are those that the server counts, and the same for both methods but for the last
// round.
func TestTraffic(t *testing.T) {
	var out bytes.Buffer
	x := traffic{Agents: 3, Rounds: 4, Size: 10, Ratio: 4, Pattern: federated.Geometric,
		Curves: filepath.Join(t.TempDir(), "curves.png")}
	if err := x.measure(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "| fedpg | 16.0 | 960 |") { // 4 rounds, 3 agents, up and down, 40 bytes
		t.Errorf("%s", &out)
	}
	if err := check([]crossing{{0, 0, 40}}, map[string]float64{"bytes_up/0": 80}, 1); err == nil {
		t.Error("lost bytes are not found")
	}
}

// TestSpeedups: with equal times nobody is faster, and with a slow agent the time follows the formula.
func TestSpeedups(t *testing.T) {
	var out bytes.Buffer
	x := traffic{Agents: 3, Rounds: 200, Size: 10}
	if err := x.speedups(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "| 1 | 1.000 (1.000) | 1.000 (1.000) | 1.000 (1.000) |") {
		t.Errorf("%s", &out)
	}
	x.Ratio, x.Pattern = 4, federated.OneSlow
	measured, formula, err := x.speedup(t.Context())
	if err != nil || formula != 3 || math.Abs(measured/formula-1) > 0.01 {
		t.Errorf("found %v, %v, %v, want 3 for nine gradients in the time of three", measured, formula, err)
	}
}

// TestStepping measures without Gymnasium.
func TestStepping(t *testing.T) {
	needMuJoCo(t)
	var out bytes.Buffer
	if err := (stepping{"", 50, 1}).measure(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "| walker2d |") {
		t.Errorf("%s", &out)
	}
	if err := (stepping{"/no/python", 50, 1}).measure(t.Context(), io.Discard); err == nil {
		t.Error("no error without Python")
	}
}

// TestSelectionTakesRunsOfE1: the runs of E2 in which nobody is absent are E1's, so that one file serves both.
func TestSelectionTakesRunsOfE1(t *testing.T) {
	s := schooling{Task: "swimmer", Seeds: 2, Agents: []int{1, 8}}
	first, _ := sizes(s)
	second, _ := selection(s)
	shared := 0
	for _, trial := range second {
		if slices.Contains(first, trial) {
			shared++
		}
	}
	if len(second) != 10 || shared != 2 {
		t.Errorf("%d runs, of which E1 has %d: want 10 and 2", len(second), shared)
	}
}
