package main

import (
	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/internal/config"
)

func newFederated(s streams) *cobra.Command {
	return parent(&cobra.Command{
		Use:   "federated",
		Short: "Train one policy by agents that keep their data: FedNPG-ADMM, AFedPG and others",
		Long: "Train one policy by agents that keep their environment or data to themselves: FedNPG-ADMM (arXiv\n" +
			"2310.19807) sends natural gradients without their matrices, AFedPG (arXiv 2404.08003) waits for\n" +
			"nobody. Other methods are there to compare with. simulate runs all in this process; server and\n" +
			"client are processes, on one machine or on a network.",
		Example: "  posttrain federated simulate\n" +
			"  posttrain federated simulate --method fednpg-admm --rounds 30\n" +
			"  posttrain federated server --spawn --agents 4",
	},
		section{"On one machine", []*cobra.Command{newFederatedSimulate(s)}},
		section{"On a network", []*cobra.Command{newFederatedServer(s), newFederatedClient(s)}})
}

// federatedFlags set the keys that simulations and servers share.
var federatedFlags = []config.Flag{
	{Name: "method", Key: "method", Help: "fednpg-admm, fednpg, afedpg, fedpg, vanilla, a3c, fedppo or\n" +
		"fedavg (default afedpg)"},
	{Name: "agents", Key: "agents", Help: "number of agents (default 4)"},
	{Name: "updates", Key: "updates",
		Help: "end after this many updates, of asynchronous methods (default 200; 0 = no limit)"},
	{Name: "rounds", Key: "rounds", Help: "end after this many rounds, of synchronous methods (default 50; 0 = no limit)"},
	{Name: "samples", Key: "samples", Help: "end after this many samples of all agents (default 0: no limit)"},
	{Name: "lr", Key: "lr", Help: "learning rate of the server's step (default: the method's)"},
	{Name: "wire", Key: "wire", Help: "type of the numbers that travel: float32 or float64 (default float32)"},
	{Name: "environment", Key: "control.environment", Help: "cartpole, pendulum, swimmer, hopper, walker2d or humanoid\n" +
		"(default cartpole)"},
}
