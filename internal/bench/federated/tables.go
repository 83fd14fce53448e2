package main

import (
	"fmt"

	"github.com/posttrain/posttrain/federated/protocol"
)

// tables are the arms by the tables' names. The rates of cartpole and swimmer are the best of a grid, each on seeds
// that the tables do not use.
var tables = map[string]func() []arm{
	"cartpole": func() []arm {
		return asynchronous("cartpole", 100, map[int][]string{
			1: {"2e-3", "2e-3", "2e-3", "4e-3"}, 2: {"2e-3", "2e-3", "2e-3", "2e-3"},
			4: {"1e-3", "2e-3", "2e-3", "4e-3"}, 8: {"5e-4", "5e-4", "2e-3", "1e-3"}})
	},
	"swimmer": func() []arm {
		return asynchronous("swimmer", 60, map[int][]string{
			1: {"5e-4", "1e-3", "5e-4", "2e-3"}, 8: {"5e-4", "2e-3", "1e-3", "1e-3"}})
	},
	"natural": natural, "absent": absent, "ci-rl": items,
}

// asynchronous compares methods that wait with methods that do not; rates are those of afedpg, vanilla, fedpg and a3c
// by the number of agents. Agent i of N needs 4^(i/(N-1)) virtual seconds for a gradient, the default of simulations.
func asynchronous(task string, iterations int, rates map[int][]string) (all []arm) {
	for k, method := range []string{protocol.AFedPG, protocol.Vanilla, protocol.FedPG, protocol.A3C} {
		for _, n := range []int{1, 2, 4, 8} {
			if rates[n] == nil {
				continue
			}
			sets := append(papers(task), "method="+method, "lr="+rates[n][k])
			all = append(all, arm{fmt.Sprintf("%s-n%d", method, n), append(sets, length(method, n, iterations)...)})
		}
	}
	return all
}

// length are the keys of a run with a number of agents and of gradients of each.
func length(method string, agents, iterations int) []string {
	limit := fmt.Sprint("rounds=", iterations)
	if protocol.Asynchronous(method) {
		limit = fmt.Sprint("updates=", iterations*agents)
	}
	return []string{fmt.Sprint("agents=", agents), limit}
}

// papers are the papers' batch, policy and critic on a task of MuJoCo.
func papers(task string) []string {
	if task == "cartpole" {
		return nil
	}
	return []string{"control.environment=" + task, "control.steps=2048", "control.hidden=[64,64]",
		"control.output_tanh=true", "control.critic.lr=3e-4", "control.critic.epochs=10", "control.critic.minibatch=64"}
}

// natural compares natural gradients on Swimmer by the number of agents. FedNPG-ADMM also runs to the letter of its
// Algorithm 1, without damping.
func natural() (all []arm) {
	for _, n := range []int{1, 2, 4, 8} {
		for _, method := range []string{protocol.FedNPG, protocol.FedNPGADMM, protocol.FedPPO} {
			sets := append(papers("swimmer"), append(length(method, n, 150), "method="+method)...)
			all = append(all, arm{fmt.Sprintf("%s-n%d", method, n), sets})
			if method == protocol.FedNPGADMM {
				all = append(all, arm{fmt.Sprintf("%s-undamped-n%d", method, n), append(sets[:len(sets):len(sets)], "damping=0")})
			}
		}
	}
	return all
}

// absent has rounds of FedNPG-ADMM in which a share of eight agents takes part; those that do not are held or dropped.
func absent() (all []arm) {
	for _, share := range []string{"1", "0.75", "0.5"} {
		for _, how := range []string{"hold", "drop"} {
			sets := append(papers("swimmer"), "method=fednpg-admm", "agents=8", "rounds=150", "select="+share, "absent="+how)
			all = append(all, arm{share + "-" + how, sets})
		}
	}
	return all
}

// items are methods of CI-RL with the embedded model and eight agents, 7,680 completions a run. One agent with all
// items is posttrain ci-rl.
func items() []arm {
	base := []string{"workload=ci-rl", "agents=8", "clock.ratio=1"}
	all := []arm{{"one-agent", []string{"workload=ci-rl", "method=fedpg", "agents=1", "rounds=60", "lr=2e-4",
		"adamw.warmup_steps=5", "ci_rl.grpo.prompts_per_step=16"}}}
	for _, method := range []string{protocol.FedAvg, protocol.FedPG, protocol.AFedPG, protocol.Vanilla,
		protocol.FedNPGADMM} {
		sets := append(base[:len(base):len(base)], append(length(method, 8, 30), "method="+method)...)
		all = append(all, arm{method, sets})
		if method == protocol.FedPG || method == protocol.AFedPG || method == protocol.Vanilla {
			all[len(all)-1].name += "-adamw"
			all = append(all, arm{method, append(sets[:len(sets):len(sets)], "rule=normalized")})
		}
	}
	return all
}
