package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// newRoot makes the whole command tree.
func newRoot(s streams) *cobra.Command {
	root := &cobra.Command{
		Use:   "posttrain",
		Short: "Align language models with MaPPO, on a CPU or a GPU",
		Long: "posttrain aligns Hugging Face language models with MaPPO preference optimisation (arXiv 2507.21183), the DPO family with\n" +
			"prior reward knowledge. Without any flag, `posttrain mappo` trains a small embedded model on embedded pairs.",
		Example:       "  posttrain mappo\n  posttrain mappo --config configs/mappo.yaml\n  posttrain sft --model DIR --data chat.jsonl",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w (see %s --help)", err, cmd.CommandPath())}
	})
	root.AddCommand(newMappo(s), newSFT(s), newExplain(s), newModel(s), newData(s), newEval(s), newBackends(s), newVersion(s))
	return root
}

// noArgs refuses positional arguments.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if cmd.HasAvailableSubCommands() {
		return usageError{fmt.Errorf("unknown command %q for %s: want %s", args[0], cmd.CommandPath(), strings.Join(subcommands(cmd), ", "))}
	}
	return usageError{fmt.Errorf("unknown argument %q: %s takes flags only (see %s --help)", args[0], cmd.CommandPath(), cmd.CommandPath())}
}

func subcommands(cmd *cobra.Command) []string {
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return names
}

// oneArg wants exactly one positional argument.
func oneArg(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 {
			return nil
		}
		return usageError{fmt.Errorf("%s wants one %s, found %d (see %s --help)", cmd.CommandPath(), what, len(args), cmd.CommandPath())}
	}
}
