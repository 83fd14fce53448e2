package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe/federated"
)

func newFederatedStep(s streams) *cobra.Command {
	var step federated.Step
	c := configured[federated.Options]{spec: federated.StepSpec,
		run: func(ctx context.Context, o federated.Options, r run.Reporter) (string, error) {
			printed, err := step.Run(ctx, o, r)
			return printed, flagFault(err)
		}}
	cmd := c.command(s, &cobra.Command{
		Use: "step", Short: "Do one step of an agent, or of the server, for another federation framework",
		Long: "Do one step and end: another framework, such as Flower, carries the files between the machines.\n" +
			"An agent reads a task, works, and writes its update. With --server, read the agents' updates and write\n" +
			"a folder with task-<agent>.bin for each agent that has a new task, and weights.bin, the parameters in\n" +
			"float64. Without updates, every agent gets its task. Both keep what they need in the folder --state;\n" +
			"a step that was killed can be done again. The server's folder is one that federated replay takes.\n" +
			"Instead of a task, an agent of a method that sends weights alone takes --weights: the parameters as\n" +
			"raw little-endian numbers of the config's wire type, in Python weights.astype('<f4').tofile(name). Its\n" +
			"update is then written in the same way: the gradient, or the change of the weights. Each step prints\n" +
			"one line of JSON.",
		Example: "  posttrain federated step --config step.yaml --server --state server --out tasks\n" +
			"  posttrain federated step --config step.yaml --agent 0 --state a0 --task tasks/task-0.bin --out u0\n" +
			"  posttrain federated step --config step.yaml --server --state server --out tasks --update u0 --update " +
			"u1\n" +
			"  posttrain federated step --config step.yaml --agent 1 --state a1 --weights w.bin --round 0 --out g.bin",
	})
	flags := cmd.Flags()
	flags.BoolVar(&step.Server, "server", false, "do a step of the server")
	flags.StringVar(&step.State, "state", "", "folder that keeps what the agent or the server needs for its next step")
	flags.IntVar(&step.Agent, "agent", 0, "number of the agent, from 0")
	flags.StringVar(&step.Task, "task", "", "file with the agent's task, from the server's step")
	flags.StringVar(&step.Weights, "weights", "", "file with the parameters as raw numbers, instead of a task")
	flags.IntVar(&step.Version, "round", 0, "round of the weights, from 0: the agent's draws depend on it")
	flags.StringArrayVar(&step.Updates, "update", nil, "file with an agent's update, for the server (may be repeated)")
	flags.BoolVar(&step.Close, "close", false, "have the server close the round without those who are late")
	flags.StringVar(&step.Out, "out", "", "file for the agent's update, or folder for the server's tasks and weights")
	return cmd
}
