package main

import (
	"context"
	"os"
	"os/exec"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/recipe/federated"
)

func newFederatedRun(s streams) *cobra.Command {
	place := func(o *federated.Service) *recipe.Place { return &o.Place }
	c := configured[federated.Service]{spec: federated.RunSpec, flags: serviceFlags, place: place}
	c.run = func(ctx context.Context, o federated.Service, r run.Reporter) (string, error) {
		program, err := os.Executable()
		if err != nil {
			return "", err
		}
		o.Start = func(server, agent, dir string) *exec.Cmd {
			return exec.Command(program, "federated", "client", "--server", server, "--agent", agent, "--state", dir,
				"--until-eof")
		}
		return federated.Serve(ctx, o, r)
	}
	return c.command(s, &cobra.Command{
		Use:   "run",
		Short: "Run a federated server and its agents as processes of this machine",
		Long: "Start a federated server on a loopback address and a process for each agent, and wait for the run to\n" +
			"end. What the agents print goes to the folder clients in the run folder. Ctrl-C ends all of them.",
		Example: "  posttrain federated run --agents 8\n" +
			"  posttrain federated run --config configs/federated.yaml --out runs/f1",
	})
}
