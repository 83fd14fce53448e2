package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/recipe/federated"
)

func newFederatedStatus(s streams) *cobra.Command {
	return &cobra.Command{
		Use: "status DIR", Short: "Show where a federated run is: version, agents, bytes, refused updates",
		Long: "Print what the server of a run folder stored last, at most a second ago while it runs: the version,\n" +
			"and for each agent its last contact, accepted updates, the delay of the last one, the bytes of\n" +
			"numbers up and down, the bytes that its process counted on its sockets, and how many updates were\n" +
			"refused for which reason.",
		Example: "  posttrain federated status runs/f1",
		Args:    oneArg("run folder"),
		RunE: func(_ *cobra.Command, args []string) error {
			status, err := federated.ReadStatus(args[0])
			if err == nil {
				fmt.Fprint(s.out, status)
			}
			return err
		},
	}
}
