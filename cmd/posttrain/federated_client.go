package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe/federated"
)

func newFederatedClient(s streams) *cobra.Command {
	c, quiet, untilEOF, allow := federated.Client{}, false, false, ""
	cmd := &cobra.Command{
		Use:   "client",
		Short: "Take part in a federated run as one agent",
		Long: "Connect to the server of a federated run, do its tasks and send the updates, until the server ends\n" +
			"the run. What the agent has learned for itself stays in its state folder. After a kill the same\n" +
			"command continues. A connection that is lost is made again, however long that takes.",
		Example: "  posttrain federated client --credentials alice.json\n" +
			"  posttrain federated client --server nats://127.0.0.1:4222 --agent agent-0",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			if untilEOF {
				limited, stop := context.WithCancel(ctx)
				defer stop()
				go func() { io.Copy(io.Discard, s.in); stop() }()
				ctx = limited
			}
			var err error
			if c.Allow, err = config.ParseGrants(allow); err != nil {
				return usageError{err}
			}
			return federated.TakePart(ctx, c, run.NewReporter(s.err, s.terminal, quiet))
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&c.Server, "server", "", "URL of the server (default: that of the credentials)")
	flags.StringVar(&c.Agent, "agent", "", "name of the agent (default: that of the credentials)")
	flags.StringVar(&c.Credentials, "credentials", "", "file that posttrain federated server --invite wrote (default:\n"+
		"none, for a server on this machine without TLS)")
	flags.StringVar(&c.State, "state", "federated-agents", "folder for what agents have learned")
	flags.StringVar(&c.Data, "data", "", "file with the agent's own items or pairs, in workloads ci-rl and\n"+
		"mappo (default: those that it is dealt)")
	flags.StringVar(&allow, "allow", "", "libraries: load one that the server names by path (default: $POSTTRAIN_ALLOW,\n"+
		"else nothing)")
	flags.BoolVar(&quiet, "quiet", false, "print only warnings and errors")
	flags.BoolVar(&untilEOF, "until-eof", false, "end when standard input ends, for programs that start agents")
	return cmd
}
