package main

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/federated/link"
	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/recipe/federated"
)

// TestFederatedCIRL: four processes with items of their own train testkit.CIModel. A simulation in the order of the
// server's journal ends with the same bits, and eval ci loads what is left.
func TestFederatedCIRL(t *testing.T) {
	asAgents(t)
	for name, c := range map[string]struct{ flags, model []string }{
		"all weights": {nil, []string{"--model", "out/model"}},
		"adapter": {[]string{"--set", "ci_rl.lora.rank=2"}, []string{"--model", testkit.CIModel(), "--adapter",
			"out/adapter"}},
	} {
		t.Run(name, func(t *testing.T) {
			workCI(t)
			must(t, append(spawn("--agents", "4", "--updates", "4", "--out", "out"),
				itemFlags(t, c.flags...)...)...)
			checkSimulated(t, "out")
			checkValidated(t, "out", "complete")
			must(t, append([]string{"eval", "ci", "--data", "items.json", "--n", "1", "--max-new-tokens", "8"},
				c.model...)...)
		})
	}
}

// itemFlags are the flags of a short run of testkit.CIModel on items.json.
func itemFlags(t *testing.T, more ...string) []string {
	t.Helper()
	path, err := filepath.Abs("items.json")
	if err != nil {
		t.Fatal(err)
	}
	return append([]string{"--workload", "ci-rl", "--seed", "3", "--set", "ci_rl.model=" + testkit.CIModel(), "--set",
		"ci_rl.data.prompt=compact", "--set", "ci_rl.data.train=" + path, "--set", "ci_rl.data.validation_fraction=0.5",
		"--set", "ci_rl.grpo.prompts_per_step=1", "--set", "ci_rl.grpo.group_size=4", "--set",
		"ci_rl.sampling.max_new_tokens=32"}, more...)
}

// TestFaultsOfCIRL: faults while language models learn by rewards.
func TestFaultsOfCIRL(t *testing.T) {
	asAgents(t)
	workCI(t)
	checkFaults(t, itemFlags(t, "--method", "fedavg", "--rounds", "3", "--agents", "3", "--set", "local.epochs=1")...)
}

// checkSimulated says that a simulation in the order of a run's journal ends with the run's bits.
func checkSimulated(t *testing.T, dir string) {
	t.Helper()
	o, err := federated.ServerSpec.Load(config.Input{Path: dir + "/config.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	want := outcomeOf(t, dir)
	if got := link.Hash(simulated(t, &o.Options, orderIn(t, dir))); !strings.Contains(want, got) {
		t.Errorf("the simulation ends at %s, the processes at %s", got, want)
	}
}

// checkValidated says that the status of a run has a validation with a metric. Which agents' it has depends on who was
// fast: a run of few updates can end before the slowest agent's first one arrives.
func checkValidated(t *testing.T, dir, metric string) {
	t.Helper()
	status := must(t, "federated", "server", "--status", dir).out
	if !regexp.MustCompile(`(?m)^validation of agent \d+: ` + metric + ` [0-9]`).MatchString(status) {
		t.Errorf("status:\n%s", status)
	}
}

// orderIn is what happened to the server of a run, in order.
func orderIn(t *testing.T, dir string) (order []link.Event) {
	t.Helper()
	for line := range strings.Lines(read(t, dir+"/journal.jsonl")) {
		var e link.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		if e.N > 0 && e.Line != "result" {
			order = append(order, e)
		}
	}
	return order
}

// simulated are the parameters at the end of a run in this process, in an order.
func simulated(t *testing.T, o *federated.Options, order []link.Event) []float64 {
	t.Helper()
	defer o.Close()
	server, _, err := o.NewServer()
	if err != nil {
		t.Fatal(err)
	}
	agents, tasks := map[int]*protocol.Agent{}, map[int]protocol.Task{}
	for _, e := range order {
		var sends []protocol.Send
		switch e.Line {
		case link.Join:
			if agents[e.Agent] == nil {
				if agents[e.Agent], err = o.NewAgent(e.Agent); err != nil {
					t.Fatal(err)
				}
			}
			_, sends = server.Join(e.Agent)
		case link.Update:
			u, err := agents[e.Agent].Do(t.Context(), tasks[e.Agent])
			if err != nil {
				t.Fatal(err)
			}
			_, sends = server.Receive(u)
		}
		for _, s := range sends {
			tasks[s.Agent] = s.Task
		}
	}
	return server.Params()
}
