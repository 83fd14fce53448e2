package control

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

type trace struct {
	Task  string
	Limit int
	Start []float64
	Steps [][3][]float64 // action, observation, [reward, terminated, truncated]
}

// TestTraces holds the environments to Gymnasium's, by traces of scripts/federated/traces.py.
func TestTraces(t *testing.T) {
	for name, open := range environments {
		text, err := os.ReadFile(filepath.Join("testdata", name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		var traces []trace
		if err := json.Unmarshal(text, &traces); err != nil {
			t.Fatal(err)
		}
		for i, tr := range traces {
			if len(tr.Steps) != 200 {
				t.Errorf("%s, trace %d has %d steps, want 200", name, i, len(tr.Steps))
			}
			follow(t, fmt.Sprintf("%s, trace %d", tr.Task, i), open(), tr)
		}
	}
}

func follow(t *testing.T, name string, e Environment, tr trace) {
	observation, space, steps := make([]float64, e.Space().Observations), e.Space(), 0
	if space.Limit != tr.Limit {
		t.Errorf("%s: limit %d, want %d", name, space.Limit, tr.Limit)
	}
	e.Set(tr.Start, observation)
	for k, s := range tr.Steps {
		reward, terminated := e.Step(s[0], observation)
		steps++
		got := []float64{reward, number(terminated), number(steps == space.Limit)}
		nearAll(t, fmt.Sprintf("%s, step %d: observation", name, k), observation, s[1], 1e-9)
		nearAll(t, fmt.Sprintf("%s, step %d: reward, terminated, truncated", name, k), got, s[2], 1e-9)
		if terminated || steps == space.Limit {
			e.Set(tr.Start, observation)
			steps = 0
		}
	}
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// nearAll compares numbers within tolerance·max(1, |want|).
func nearAll(t *testing.T, what string, got, want []float64, tolerance float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d numbers, want %d", what, len(got), len(want))
	}
	for i := range want {
		if !(math.Abs(got[i]-want[i]) <= tolerance*max(1, math.Abs(want[i]))) {
			t.Errorf("%s [%d]: %v, want %v", what, i, got[i], want[i])
		}
	}
}

// TestReset: starts lie in Gymnasium's ranges, and a state set is the state observed.
func TestReset(t *testing.T) {
	for name, high := range map[string][]float64{"cartpole": {0.05, 0.05, 0.05, 0.05}, "pendulum": {1, 1, 1}} {
		e, r := environments[name](), rand.New(rand.NewPCG(1, 2))
		observation := make([]float64, e.Space().Observations)
		for range 100 {
			e.Reset(r, observation)
			for i, o := range observation {
				if math.Abs(o) > high[i]+1e-7 {
					t.Fatalf("%s: observation %v of a start, want at most %v", name, observation, high)
				}
			}
		}
	}
}
