package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/posttrain/posttrain/recipe/federated"
)

func newFederatedServer(s streams) *cobra.Command {
	c := configured[federated.Service]{spec: federated.ServerSpec, run: federated.Serve}
	cmd := c.command(s, &cobra.Command{
		Use:   "server",
		Short: "Serve a federated run: agents connect, work, and send their updates",
		Long: "Serve a federated run. Agents connect to it (posttrain federated client), each with data or an\n" +
			"environment of its own; with --spawn they are processes that this command starts. Every update is on\n" +
			"the disk before it is applied: after a kill, --resume continues with the same bits. On an address\n" +
			"that other machines reach the server uses TLS, and only agents that were invited take part: --invite\n" +
			"writes an agent's key, address and certificate to a file, which is secret, and --revoke takes the\n" +
			"agent's place away for good, from a server that runs within seconds. The server ends when the run is\n" +
			"done, and stops the agents. --status prints where a run is.",
		Example: "  posttrain federated server --spawn --agents 8\n" +
			"  posttrain federated server --listen 0.0.0.0:4222 --agents 8 --out runs/f1\n" +
			"  posttrain federated server --run runs/f1 --invite alice --url tls://203.0.113.7:4222\n" +
			"  posttrain federated server --run runs/f1 --revoke alice\n" +
			"  posttrain federated server --status runs/f1\n" +
			"  posttrain federated server --resume runs/f1",
	})
	addOperatorFlags(s, cmd)
	return cmd
}

// addOperatorFlags adds what an operator asks of a run that has a server, instead of serving one.
func addOperatorFlags(s streams, cmd *cobra.Command) {
	i, invite, revoke, status := federated.Invitation{}, "", "", ""
	flags, serve := cmd.Flags(), cmd.RunE
	flags.StringVar(&status, "status", "", "print where the run of this folder is: version, agents, bytes, refusals")
	flags.StringVar(&invite, "invite", "", "write the credentials of an agent of this name, for the run of --run")
	flags.StringVar(&revoke, "revoke", "", "take the credentials of this agent of the run of --run back")
	flags.StringVar(&i.Run, "run", "", "run folder of --invite and --revoke")
	flags.StringVar(&i.Server, "url", "", "where the invited agent reaches the server (default: where it listens)")
	flags.StringVar(&i.Out, "credentials", "", "file that --invite writes (default: the agent's name and .json)")
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		printed := ""
		if err := checkAsked(flags); err != nil {
			return err
		}
		switch {
		case status != "":
			printed, err = federated.ReadStatus(status)
		case invite == "" && revoke == "" && i != federated.Invitation{}:
			return usageError{errors.New("--run, --url and --credentials: want --invite NAME or --revoke NAME")}
		case invite == "" && revoke == "":
			return serve(cmd, args)
		case i.Run == "":
			return usageError{errors.New("--run is missing: want the run folder of a federated server")}
		case revoke != "":
			printed, err = federated.Revoke(i.Run, revoke)
		default:
			i.Agent = invite
			printed, err = federated.Invite(i)
		}
		fmt.Fprint(s.out, printed)
		return err
	}
}

// checkAsked refuses flags beside one that asks, but those that go with it.
func checkAsked(flags *pflag.FlagSet) (err error) {
	for _, goes := range [][]string{{"status"}, {"invite", "run", "url", "credentials"}, {"revoke", "run"}} {
		flags.Visit(func(f *pflag.Flag) {
			if flags.Changed(goes[0]) && !slices.Contains(goes, f.Name) {
				err = usageError{fmt.Errorf("--%s: --%s has no use for it: remove it", f.Name, goes[0])}
			}
		})
	}
	return err
}
