package main

import "github.com/spf13/cobra"

func newFederated(s streams) *cobra.Command {
	return parent(&cobra.Command{
		Use:   "federated",
		Short: "Train one policy by agents that keep their data: FedNPG-ADMM, AFedPG and others",
		Example: "  posttrain federated replay runs/federated-server-20260102-150405\n" +
			"  posttrain federated step --config step.yaml --agent 0 --task tasks/task-0.bin --state agent-0 " +
			"--out update.bin",
	}, newFederatedServer(s), newFederatedClient(s), newFederatedRun(s), newFederatedInvite(s), newFederatedStatus(s),
		newFederatedReplay(s), newFederatedStep(s))
}
