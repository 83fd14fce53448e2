package control

import (
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/posttrain/posttrain/internal/mujoco"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/internal/testkit/need"
)

type trace struct {
	Task  string
	Limit int
	Start []float64
	Steps [][3][]float64 // action, observation or nothing, [reward, terminated, truncated]
}

// open opens an environment. A test that needs MuJoCo is skipped without it.
func open(t *testing.T, name string) (environment, space) {
	t.Helper()
	if _, err := mujoco.Find(); err != nil && name != cartpoleName {
		need.Lack(t, "mujoco", err.Error())
	}
	k := environments[name]
	e := expect.Must(k.open())(t)
	return e, k.space
}

// TestTraces holds the environments to Gymnasium's, by traces of scripts/federated/traces.py.
func TestTraces(t *testing.T) {
	for name := range environments {
		t.Run(name, func(t *testing.T) {
			var traces []trace
			expect.Decode(t, filepath.Join("testdata", name+".json"), &traces)
			if len(traces) == 0 {
				t.Fatal("no traces")
			}
			for i, tr := range traces {
				if len(tr.Steps) != 200 {
					t.Errorf("%s, trace %d has %d steps, want 200", name, i, len(tr.Steps))
				}
				e, space := open(t, name)
				follow(t, fmt.Sprintf("%s, trace %d", tr.Task, i), e, space, tr)
			}
		})
	}
}

func follow(t *testing.T, name string, e environment, space space, tr trace) {
	observation, steps := make([]float64, space.observations), 0
	if space.limit != tr.Limit {
		t.Errorf("%s: limit %d, want %d", name, space.limit, tr.Limit)
	}
	e.Set(tr.Start, observation)
	for k, s := range tr.Steps {
		reward, terminated := e.Step(s[0], observation)
		steps++
		got := []float64{reward, number(terminated), number(steps == space.limit)}
		if len(s[1]) > 0 || k == 0 {
			nearAll(t, fmt.Sprintf("%s, step %d: observation", name, k), observation, s[1], 1e-9)
		}
		nearAll(t, fmt.Sprintf("%s, step %d: reward, terminated, truncated", name, k), got, s[2], 1e-9)
		if terminated || steps == space.limit {
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

// TestReset: starts lie in Gymnasium's ranges, fill them, and differ. Of the humanoid's observation it looks at what is
// drawn.
func TestReset(t *testing.T) {
	for name, c := range map[string]struct{ middle, high []float64 }{
		"cartpole": {make([]float64, 4), repeat(0.05, 4)},
		"swimmer":  {make([]float64, 8), repeat(0.1, 8)},
		"hopper":   {append([]float64{1.25}, make([]float64, 10)...), repeat(5e-3, 11)},
		"walker2d": {append([]float64{1.25}, make([]float64, 16)...), repeat(5e-3, 17)},
		"humanoid": {append([]float64{1.4, 1}, make([]float64, 43)...), repeat(1e-2, 45)},
	} {
		t.Run(name, func(t *testing.T) {
			e, space := open(t, name)
			r, widest := rand.New(rand.NewPCG(1, 2)), make([]float64, len(c.middle))
			observation := make([]float64, space.observations)
			for range 100 {
				e.Reset(r, observation)
				for i, o := range observation[:len(widest)] {
					widest[i] = max(widest[i], math.Abs(o-c.middle[i]))
				}
			}
			for i, w := range widest {
				if !(w <= c.high[i]+1e-7 && w > 0.9*c.high[i]) {
					t.Errorf("observation %d of 100 starts is at most %v away from %v, want %v", i, w, c.middle[i],
						c.high[i])
				}
			}
		})
	}
}

func repeat(x float64, n int) []float64 { return slices.Repeat([]float64{x}, n) }

// TestNewAfterAnEnd: what was before the start of an episode does not change it, in a model with contacts too.
func TestNewAfterAnEnd(t *testing.T) {
	for _, name := range []string{"swimmer", "hopper", "walker2d", "humanoid"} {
		t.Run(name, func(t *testing.T) {
			e, space := open(t, name)
			first, again := play(e, space), play(e, space)
			other, _ := open(t, name)
			if !slices.Equal(first, again) || !slices.Equal(first, play(other, space)) {
				t.Errorf("%v, then %v: want equal bits", first, again)
			}
		})
	}
}

// play is the last observation of an episode under full controls.
func play(e environment, space space) []float64 {
	observation, action := make([]float64, space.observations), make([]float64, space.actions())
	e.Reset(rand.New(rand.NewPCG(1, 2)), observation)
	for i := range 50 {
		for k := range action {
			action[k] = space.low[k]
			if (i/5+k)%2 == 0 {
				action[k] = space.high[k]
			}
		}
		if _, ended := e.Step(action, observation); ended {
			break
		}
	}
	return observation
}

// TestWithoutMuJoCo: a task needs no library, an agent gets one line that says what to do.
func TestWithoutMuJoCo(t *testing.T) {
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	t.Setenv("MUJOCO_LIBRARY_PATH", "")
	o := DefaultOptions()
	o.Environment, o.Hidden = "swimmer", []int{64, 64}
	if n := len(NewTask(o, 1).Start()); n != 4868 { // as the paper's
		t.Errorf("%d parameters, want 4868", n)
	}
	_, err := New(o, 0, 1)
	expect.Error(t, err, "no file", "install-mujoco.sh")
	if s := Simulator("swimmer"); s != err.Error() {
		t.Errorf("%q, want the same", s)
	}
	if s := Simulator("cartpole"); s != "" {
		t.Errorf("cartpole: %q, want nothing", s)
	}
}
