// Command bench measures posttrain against what others run, on one machine in one run: go run ./bench COMMAND.
//
// Glossary:
//   - side: a child process that does one step for each line it reads (peer_torch.py, or this program's own serve), so
//     that its peak memory is its own and its threads are nobody else's;
//   - world: a folder with a model and batch.json, one batch and its reference log-probs: what both sides train on; or
//     with a model and prompts.json: what all sides sample from;
//   - round: one step of every side, one after the other, with a pause between, since threads spin for a while after
//     their work.
//
// The pipeline of a comparison:
//  1. one side makes the world, the others load it;
//  2. rounds; the first two are thrown away, and the losses of all sides must agree in every one (where
//     sides draw for themselves, what they drew must be alike);
//  3. a table: median, fastest and peak memory of every side, ratios to the first.
//
// The Python scripts beside this program need an interpreter with PyTorch (--python). What a README of this folder says
// about fairness holds for all commands.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

func main() {
	root := &cobra.Command{
		Use:           "bench",
		Short:         "Measure posttrain against its peers, alternating in one run",
		Example:       "  go run ./bench step --python venv/bin/python\n  go run ./bench prefix\n  go run ./bench sample --python venv/bin/python\n  go run ./bench grpo --python venv/bin/python\n  go run ./bench trl --python venv/bin/python --data pairs.jsonl.gz\n  go run ./bench privacylens",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddCommand(newStep(), newPrefix(), newAccumulate(), newTRL(), newPadding(), newParity(), newGPU(), newServe(),
		newSample(), newGroup(), newCompaction(), newGRPOTrain(), newGRPO(), newPrivacyLens(), newServeSampler(), newServeGroups())
	if err := root.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "bench: "+err.Error())
		os.Exit(1)
	}
}
