package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/recipe/federated"
)

func newFederatedInvite(s streams) *cobra.Command {
	i := federated.Invitation{}
	cmd := &cobra.Command{
		Use:   "invite",
		Short: "Write the credentials of an agent of a federated run, or revoke them",
		Long: "Make a key for an agent, register its public half with the run, and write the credentials file that\n" +
			"posttrain federated client needs: key, certificate, address, run and subjects. The file is secret. A\n" +
			"server on a loopback address uses keys from its next start on (--resume), or from the start with\n" +
			"--tls on. With --revoke the agent loses its place; a server that runs notices within seconds.",
		Example: "  posttrain federated invite --run runs/f1 --agent alice --server tls://203.0.113.7:4222\n" +
			"  posttrain federated invite --run runs/f1 --agent alice --revoke",
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			switch {
			case i.Run == "":
				return usageError{errors.New("--run is missing: want the run folder of a federated server")}
			case i.Agent == "":
				return usageError{errors.New("--agent is missing: want a name of letters, digits, - and _")}
			}
			printed, err := federated.Invite(i)
			fmt.Fprint(s.out, printed)
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&i.Run, "run", "", "run folder of the server")
	flags.StringVar(&i.Agent, "agent", "", "name of the agent")
	flags.StringVar(&i.Server, "server", "", "URL at which the agent reaches the server (default: where it listens)")
	flags.StringVar(&i.Out, "out", "", "file to write (default: the agent's name and .json)")
	flags.BoolVar(&i.Revoke, "revoke", false, "take the agent's key back")
	return cmd
}
