// Command bench measures posttrain against its peers, on one machine in one run: go run ./internal/bench COMMAND.
//
// Glossary:
//   - side: a child process that does one step for each line it reads (peer_torch.py, or this program's own serve). It
//     has its own threads and its own peak memory;
//   - world: a folder with a model and batch.json, a batch and its reference log-probs, on which both sides train; or
//     with a model and prompts.json, from which all sides sample;
//   - round: one step of every side, one after the other, with a pause between, since threads spin for a while after
//     their work.
//
// The pipeline of a comparison:
//  1. one side makes the world, the others load it;
//  2. rounds: the first two do not count; in every one the losses of all sides must agree (where sides sample for
//     themselves, their means must be close);
//  3. a table: median, fastest and peak memory of every side, ratios to the first.
//
// The Python scripts in this folder need an interpreter with PyTorch (--python). README.md says what makes a comparison
// fair; that holds for all commands.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
)

func main() {
	if err := newRoot().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "bench: "+err.Error())
		os.Exit(1)
	}
}

// newRoot makes the whole command tree.
func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "bench",
		Short: "Measure posttrain against its peers, alternating in one run",
		Example: `  go run ./internal/bench step --python venv/bin/python
  go run ./internal/bench sample --python venv/bin/python
  go run ./internal/bench grpo --python venv/bin/python
  go run ./internal/bench trl --python venv/bin/python --data pairs.jsonl.gz`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddCommand(newStep(), newSample(), newGRPO(), newTRL(), newEngines(), newParity(), newGPU(), newPrior(),
		newServe(), newServeSampler(), newServeGroups())
	return root
}

// newCommand is a command without arguments.
func newCommand(use, short, example string, run func(out io.Writer) error) *cobra.Command {
	return &cobra.Command{
		Use:     use,
		Short:   short,
		Example: example,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return run(cmd.OutOrStdout()) },
	}
}

// forEach calls f for every value, until an error.
func forEach[T any](all []T, f func(T) error) error {
	for _, x := range all {
		if err := f(x); err != nil {
			return err
		}
	}
	return nil
}
