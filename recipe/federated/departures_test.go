package federated

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/mujoco"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/internal/testkit/need"
)

// TestDepartures: a run that does all as its paper says so, and one change, given or by default, ends that.
func TestDepartures(t *testing.T) {
	admm := []string{"method=fednpg-admm", "agents=8", "wire=float64", "rounds=1000", "absent=drop", "eta=0.999",
		"control.environment=swimmer",
		"control.hidden=[64,64]", "control.output_tanh=true", "control.steps=2048", "control.critic.lr=3e-4"}
	asynchronous := []string{"agents=8", "updates=40000", "max_delay=40000", "rate=published", "lr=5e-5", "alpha=0.001",
		"clip=0", "control.environment=walker2d", "control.hidden=[512,512]", "control.output_tanh=true",
		"control.trajectories=1", "control.norm=trajectories"}
	with := func(base []string, sets ...string) []string { return append(base[:len(base):len(base)], sets...) }
	for _, c := range []struct {
		sets []string
		want string
	}{
		{admm, "none"},
		{with(admm, "select=0.5"), "none"}, // an experiment of the paper's
		{with(admm, "eta=1"), "eta: 1 (paper: in (0, 1))"},
		{with(admm, "damping=0.1"), "damping: 0.1 (paper: 0)"},
		{with(admm, "line_search=on"), "line_search: on (paper: off)"},
		{with(admm, "clip=3"), "clip: 3 (paper: 0)"},
		{with(admm, "absent=hold"), "absent: hold (paper: drop)"},
		{with(admm, "inner=2"), "inner: 2 (paper: 1)"},
		{with(admm, "rho=0.2"), "rho: 0.2 (paper: 0.1)"},
		{with(admm, "delta=0.02"), "delta: 0.02 (paper: 0.01)"},
		{with(admm, "step=fixed"), "step: fixed (paper: trust); norm: timesteps (paper: trajectories)"},
		{with(admm, "deadline=3s"), "deadline: 3s (paper: 0s)"},
		{with(admm, "weights=samples"), "weights: samples (paper: equal)"},
		{with(admm, "wire=float32"), "messages: float32 (paper: float64)"},
		{with(admm, "secure=true"), "secure: true (paper: false)"},
		{with(admm, "rounds=150"), "rounds: 150 (paper: 1000)"},
		{with(admm, "control.hidden=[32,32]"), "hidden layers: [32 32] (paper: [64 64])"},
		{with(admm, "control.activation=tanh"), "control.activation: tanh (paper: relu)"},
		{with(admm, "control.output_tanh=false"), "control.output_tanh: false (paper: true)"},
		{with(admm, "control.steps=1024"), "batch: 1024 steps (paper: 2048 steps)"},
		{with(admm, "control.lambda=1"), "control.lambda: 1 (paper: 0.95)"},
		{with(admm, "control.returns=letter"), "control.returns: letter (paper: gae)"},
		{with(admm, "control.entropy=0.01"), "entropy: 0.01 (paper: 0)"},
		{with(admm, "control.critic.lr=3e-3"), "critic's rate: 0.003 (paper: 0.0003)"},
		{with(admm, "control.environment=cartpole"), "environment: cartpole (paper: swimmer, hopper, humanoid)"},
		{asynchronous, "none"},
		{with(asynchronous, "method=vanilla"), "none"},
		{with(asynchronous, "max_delay=32"), "delay: at most 32 versions (paper: any)"},
		{with(asynchronous, "rate=adam"), "rate: adam (paper: published)"},
		{with(asynchronous, "lr=1e-4"), "lr: 0.0001 (paper: 5e-05)"},
		{with(asynchronous, "alpha=0.2"), "alpha: 0.2 (paper: 0.001)"},
		{with(asynchronous, "wire=float64"), "messages: float64 (paper: float32)"},
		{with(asynchronous, "updates=40001", "control.trajectories=", "control.steps=9"),
			"delay: at most 40000 versions (paper: any); batch: 9 steps (paper: 1 episode); updates: 40001 (paper: 40000)"},
		{nil, "rate: adam (paper: published); alpha: 0.2 (paper: 0.001); clip: 3 (paper: 0); " +
			"delay: at most 16 versions (paper: any); environment: cartpole (paper: swimmer, hopper, walker2d, humanoid); " +
			"batch: 1024 steps (paper: 1 episode)"},
		{[]string{"method=fednpg-admm"},
			"absent: hold (paper: drop); eta: 1 (paper: in (0, 1)); messages: float32 (paper: float64); environment: cartpole (paper: swimmer, " +
				"hopper, humanoid)"},
		{[]string{"workload=quadratic", "method=fednpg-admm", "wire=float64", "absent=drop", "eta=0.5"},
			"workload: quadratic (paper: control tasks)"},
	} {
		s := load(t, c.sets...)
		_, got, _ := strings.Cut(s.Options.Explain(), "departures: ")
		if got = strings.TrimSpace(got); got != c.want {
			t.Errorf("%v:\n%s\nwant\n%s", c.sets, got, c.want)
		}
	}
}

// TestPresets: each preset is its paper's run, but for what is said here, and a short form of it, with a tiny network,
// learns from whole batches.
func TestPresets(t *testing.T) {
	paths, err := filepath.Glob("../../configs/federated/*.yaml")
	if err != nil || len(paths) != 8 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".yaml")
		s := expect.Must(Spec.Load(config.Input{Path: path}))(t)
		const eta = "eta: 1 (paper: in (0, 1))"
		want := map[string]string{"swimmer-fednpg-admm": "damping: 0.1 (paper: 0); " + eta, "hopper-fednpg-admm": eta,
			"humanoid-fednpg-admm": eta, "walker2d-fednpg-admm": eta +
				"; environment: walker2d (paper: swimmer, hopper, humanoid)"}[name]
		row := fmt.Sprintf("episodes are whole, whatever the table's row Timesteps T (%d) is",
			timesteps[s.Control.Environment])
		if strings.Contains(s.open(), row) != protocol.Asynchronous(s.Method) {
			t.Errorf("%s: left open: %s", name, s.open())
		}
		if got := s.departures(); got != want && (want != "" || got != "none") {
			t.Errorf("%s: departures: %s, want %s", name, got, want)
		}
		if task, method, _ := strings.Cut(name, "-"); s.Control.Environment != task || s.Method != method || s.Agents != 8 {
			t.Errorf("%s: %s of %d agents on %s", name, s.Method, s.Agents, s.Control.Environment)
		}
		sets := []string{"agents=2", "control.hidden=[4]", "control.critic.epochs=1"}
		if protocol.Asynchronous(s.Method) {
			sets = append(sets, "updates=3")
		} else {
			sets = append(sets, "rounds=2", "control.steps=50")
		}
		s = expect.Must(Spec.Load(config.Input{Path: path, Overrides: testkit.Overrides(t, sets...)}))(t)
		if _, err := mujoco.Find(); err != nil {
			need.Lack(t, "mujoco", err.Error())
		}
		s.Dir.Out = filepath.Join(t.TempDir(), "run")
		result, err := Run(t.Context(), *s, nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		side := result.Sides[0]
		if protocol.Asynchronous(s.Method) && (side.Updates != 3 || side.Return.Count != 3) || side.Updates < 1 {
			t.Errorf("%s: %+v", name, side)
		}
	}
}
