package main

import "github.com/spf13/cobra"

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
