package main

import (
	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/recipe/federated"
)

func newFederatedSimulate(s streams) *cobra.Command {
	c := configured[federated.Simulation]{spec: federated.Spec, run: summary(federated.Run)}
	return c.command(s, &cobra.Command{
		Use:   "simulate",
		Short: "Simulate a federated run on a virtual clock, and compare its time and bytes with another method",
		Long: "Run the server and all agents in this process. Each agent needs a given virtual time for a gradient,\n" +
			"so that methods that wait and methods that do not can be compared on any machine. The same seed\n" +
			"gives the same bits. Without flags four agents, the slowest of which needs four times as long as the\n" +
			"fastest, learn cartpole by AFedPG; then FedPG gets as many samples.",
		Example: "  posttrain federated simulate\n" +
			"  posttrain federated simulate --method fednpg-admm --agents 8 --rounds 30 --compare none\n" +
			"  posttrain federated simulate --config configs/federated.yaml --agents 4 --times 1,1,1,6\n" +
			"  posttrain federated simulate --resume runs/federated-simulate-20260102-150405",
	})
}
