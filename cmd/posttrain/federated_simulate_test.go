package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// tinySimulation are the arguments of a small run after `posttrain federated simulate`.
func tinySimulation(more ...string) []string {
	return slices.Concat([]string{"--agents", "3", "--updates", "12", "--set", "control.steps=60", "--set",
		"control.hidden=[4]", "--set", "checkpoint_every=5"}, more)
}

func simulate(args ...string) []string { return append([]string{"federated", "simulate"}, args...) }

// TestFederatedSimulate: a run with its comparison prints a summary, and flags count.
func TestFederatedSimulate(t *testing.T) {
	t.Chdir(t.TempDir())
	o := must(t, simulate(tinySimulation("--out", "out", "--times", "1,1,4", "--seed", "3")...)...)
	for _, want := range []string{"afedpg on control/cartpole", "12 updates of 3 agents", "\nfedpg ",
		"t_max/(N·t̄) is 3.00", "Curves: out/curves.png"} {
		if !strings.Contains(o.out, want) {
			t.Errorf("%q is not in\n%s", want, o.out)
		}
	}
	if !strings.Contains(o.err, "update 12/12") {
		t.Errorf("no progress: %s", o.err)
	}
	config := read(t, "out/config.yaml")
	for _, want := range []string{"command: federated simulate", "updates: 12", "seed: 3", "times:"} {
		if !strings.Contains(config, want) {
			t.Errorf("%q is not in\n%s", want, config)
		}
	}
	if again := must(t, simulate("--resume", "out")...); again.out != o.out {
		t.Errorf("a finished run, resumed:\n%s\nwant\n%s", again.out, o.out)
	}
}

const federatedHead = "command: federated simulate\n"

// federatedFaults are refused before anything is written.
var federatedFaults = []faultCase{
	{"unknown method", nil, simulate("--method", "fedsgd"), 2, []string{"--method", `method "fedsgd"`,
		"fednpg-admm, fednpg, afedpg"}, nil},
	{"unknown workload", nil, simulate("--workload", "mujoco"), 2, []string{"--workload", `"mujoco"`,
		"control, ci-rl, mappo or quadratic"}, nil},
	{"MaPPO without a file", nil, simulate("--workload", "mappo", "--set", "mappo.data.train=no.jsonl"), 1,
		[]string{"no.jsonl"}, nil},
	{"MaPPO without samples of the policy", nil, simulate("--workload", "mappo", "--method", "fednpg"), 2,
		[]string{"--method", "method fednpg", "needs samples of the policy", "afedpg, fedpg"}, nil},
	{"MaPPO with owners and no column", nil, simulate("--workload", "mappo", "--set", "mappo.split=column"), 2,
		[]string{"mappo.split_column is missing", "needs the name of a column"}, nil},
	{"unknown environment", nil, simulate("--environment", "ant"), 2, []string{"--environment", `"ant"`,
		"cartpole, swimmer, hopper, walker2d or humanoid"}, nil},
	{"no MuJoCo", func(t *testing.T) { t.Setenv("MUJOCO_LIBRARY_PATH", "/no/such.so") },
		simulate("--environment", "swimmer"), 1, []string{"MUJOCO_LIBRARY_PATH: no file /no/such.so"}, nil},
	{"no penalty", nil, simulate("--method", "fednpg-admm", "--set", "rho=0"), 2, []string{"--set", "rho 0",
		"a number above 0"}, nil},
	{"negative penalty", withFile("bad.yaml", federatedHead+"method: fednpg-admm\nrho: -0.1\n"),
		simulate("--config", "bad.yaml"), 1, []string{"bad.yaml:3", "rho -0.1", "a number above 0"}, nil},
	{"penalty without ADMM", nil, simulate("--set", "rho=0.1"), 2, []string{"--set", "rho 0.1",
		"afedpg does not use it, only fednpg-admm does", "remove it"}, nil},
	{"rounds without rounds", nil, simulate("--rounds", "5"), 2, []string{"--rounds", "rounds 5",
		"afedpg does not use it, only fednpg-admm, fednpg, fedpg, fedppo and fedavg do"}, nil},
	{"more agents in a round than there are", nil, simulate("--method", "fedpg", "--set", "select=1.25"), 2,
		[]string{"--set", "select 1.25", "above 0 and at most 1"}, nil},
	{"no agents", nil, simulate("--agents", "0"), 2, []string{"--agents", "agents 0", "1 or more"}, nil},
	{"a million agents", nil, simulate("--agents", "1000000"), 2, []string{"--agents", "agents 1000000",
		"1 or more and at most 4096"}, nil},
	{"endless batch", nil, simulate("--set", "control.steps=9999999999999999"), 2, []string{"--set", "control.steps",
		"from 1 to 1048576"}, nil},
	{"endless quadratic", nil, simulate("--workload", "quadratic", "--set", "quadratic.size=99999999999999"), 2,
		[]string{"--set", "quadratic.size", "from 1 to 16777216"}, nil},
	{"layers of 4 billion parameters", nil, simulate("--set", "control.hidden=[65536, 65536]"), 2, []string{"--set",
		"control.hidden [65536 65536]", "4295032832 parameters", "at most 16777216"}, nil},
	{"half an agent", nil, simulate("--agents", "2.5"), 2, []string{"--agents", "agents 2.5", "a whole number"}, nil},
	{"times for other agents", nil, simulate("--agents", "3", "--times", "1,2"), 2, []string{"--times",
		"2 times for 3 agents", "one for each"}, nil},
	{"time without a length", nil, simulate("--agents", "2", "--times", "1,0"), 2, []string{"--times",
		"each item a number above 0"}, nil},
	{"time without end", nil, simulate("--agents", "2", "--times", "1,inf"), 2, []string{"--times",
		"each item a number above 0"}, nil},
	{"two ways to say times", nil, simulate("--agents", "2", "--times", "1,2", "--ratio", "3"), 2, []string{"--ratio",
		"clock.times says", "remove one"}, nil},
	{"ratio below one", nil, simulate("--ratio", "0.5"), 2, []string{"--ratio", "clock.ratio 0.5", "1 or more"}, nil},
	{"no limit", nil, simulate("--updates", "0"), 2, []string{"--updates", "updates 0", "would never end",
		"updates or samples above 0"}, nil},
	{"no limit of rounds", nil, simulate("--method", "fedavg", "--rounds", "0"), 2, []string{"--rounds",
		"would never end"}, nil},
	{"wire of another type", nil, simulate("--wire", "bfloat16"), 2, []string{"--wire", `wire "bfloat16"`,
		"float32 or float64"}, nil},
	{"a schedule's α", nil, simulate("--set", "schedule=global", "--set", "alpha=0.1"), 2, []string{"--set",
		"alpha 0.1", "the schedule has its own α"}, nil},
	{"line search of a fixed step", nil, simulate("--method", "fednpg-admm", "--set", "step=fixed", "--set",
		"line_search=on"), 2, []string{"--set", "line_search", "want off, or step trust"}, nil},
	{"secure sums without rounds", nil, simulate("--set", "secure=true"), 2, []string{"--set", "secure true",
		"afedpg steps on single updates", "want a method in rounds, fednpg-admm"}, nil},
	{"compared with what needs samples", nil, simulate("--set", "workload=mappo", "--compare", "fednpg"), 2,
		[]string{"--compare", "fednpg", "needs samples of the policy", "or none"}, nil},
	{"compared with itself", nil, simulate("--compare", "afedpg"), 2, []string{"--compare", "the method itself"}, nil},
	{"key of the other workload", nil, simulate("--set", "quadratic.size=9"), 2, []string{"--set", "quadratic.size",
		"workload is control"}, nil},
	{"layer without units", nil, simulate("--set", "control.hidden=[64, 0]"), 2, []string{"--set", "control.hidden",
		"whole numbers"}, nil},
	{"key of another command", withFile("bad.yaml", federatedHead+"loss:\n  beta: 1\n"),
		simulate("--config", "bad.yaml"), 1, []string{"bad.yaml:2", "loss"}, nil},
	{"config of another command", withFile("bad.yaml", "command: mappo\n"), simulate("--config", "bad.yaml"), 1,
		[]string{"bad.yaml:1", "posttrain mappo", "not federated simulate"}, nil},
	{"folder that is not empty", withFile("file", "x"), simulate("--out", "."), 1,
		[]string{"is not empty", "--out DIR"}, nil},
	{"resume of nothing", nil, simulate("--resume", "out"), 1, []string{"--resume out", "there is no run in it"}, nil},
	{"unknown part", nil, []string{"federated", "simulte"}, 2, []string{`unknown command "simulte"`, "simulate"},
		nil},
}

func TestFederatedFaults(t *testing.T) {
	refuseAll(t, func(t *testing.T) { t.Chdir(t.TempDir()) }, federatedFaults)
}

// A run is continued with the configuration that it was started with, and with a simulation's own.
func TestFederatedResumeOfAnother(t *testing.T) {
	t.Chdir(t.TempDir())
	must(t, simulate(tinySimulation("--out", "out", "--compare", "none")...)...)
	checkRefusal(t, cli(t, simulate("--resume", "out", "--seed", "4")...), faultCase{code: 1,
		says: []string{"--resume out", "seed: 0, now 4"}})
	for _, name := range []string{"out/checkpoints/step-00000012", "out/checkpoints/step-00000010"} {
		write(t, name+"/simulation.bin", "damaged")
	}
	o := must(t, simulate("--resume", "out")...)
	if !strings.Contains(o.err, "is damaged") {
		t.Errorf("damaged checkpoints: %s", o.err)
	}
}

// Where every gradient is refused, one line says so, in a simulation and on a network.
func TestFederatedStuck(t *testing.T) {
	asAgents(t)
	t.Chdir(t.TempDir())
	for i, command := range [][]string{simulate(), spawn()} { // the one advantage of a batch is 0
		o := cli(t, append(command, "--agents", "2", "--set", "control.steps=1", "--out", fmt.Sprint(i))...)
		if o.code != exitFailed || !strings.HasPrefix(o.last(), "posttrain: after 0 updates no agent has work left: ") {
			t.Errorf("%s: code %d: %s", command, o.code, o.err)
		}
	}
	o := cli(t, simulate("--set", "lr=1e300", "--agents", "2", "--updates", "9", "--set", "control.steps=20", "--out",
		"out")...)
	if o.code != exitFailed || !strings.Contains(o.last(), "no agent has work left") &&
		!strings.Contains(o.last(), "finite") {
		t.Errorf("code %d: %s", o.code, o.err)
	}
}
