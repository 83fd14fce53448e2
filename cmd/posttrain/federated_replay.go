package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/recipe/federated"
)

func newFederatedReplay(s streams) *cobra.Command {
	return &cobra.Command{
		Use: "replay DIR", Short: "Compute a federated run again from its journal and compare every checkpoint",
		Long: "Give every update in the journal of a run folder to a new server, in the order in which they came,\n" +
			"and compare each checkpoint with it, bit for bit. Print what was compared and the SHA-256 of the\n" +
			"last parameters. The exit code is 1 if anything differs. Nothing is changed, and the run may be\n" +
			"under way.",
		Example: "  posttrain federated replay runs/federated-server-20260102-150405",
		Args:    oneArg("run folder"),
		RunE: func(_ *cobra.Command, args []string) error {
			printed, err := federated.Replay(args[0])
			fmt.Fprint(s.out, printed)
			return err
		},
	}
}
