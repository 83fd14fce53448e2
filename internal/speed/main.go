// Command speed measures posttrain against its peers, on one machine in one run, and makes the tables of several seeds
// in docs/: go run ./internal/speed COMMAND.
//
// Glossary:
//   - side: a child process that does one step for each line it reads (peer_torch.py, or this program's own side). It
//     has its own threads and its own peak memory;
//   - world: a folder with a model and batch.json, a batch and its reference log-probs, on which both sides train; or
//     with a model and prompts.json, from which all sides sample;
//   - round: one step of every side, one after the other, with a pause between, since threads spin for a while after
//     their work.
//
// A comparison has one side, or this program, make the world. In every round the losses of all sides must agree; where
// sides sample for themselves, their means must be close. Then it prints a table with ratios to the first side.
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
		fmt.Fprintln(os.Stderr, "speed: "+err.Error())
		os.Exit(1)
	}
}

// newRoot makes the whole command tree.
func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "speed",
		Short: "Measure posttrain against its peers, alternating in one run",
		Example: `  go run ./internal/speed step --python venv/bin/python
  go run ./internal/speed sample --python venv/bin/python
  go run ./internal/speed grpo --python venv/bin/python
  go run ./internal/speed trl --python venv/bin/python --data pairs.jsonl.gz
  go run ./internal/speed seeds prior`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddCommand(newStep(), newSample(), newGRPO(), newTRL(), newSeeds(), newSide())
	return root
}

// options are the options of a comparison in rounds.
type options struct {
	setup
	python, device, dtype string
	presets               []string
	rounds                int
}

// newComparison is a command that compares the sides on each preset.
func newComparison(o *options, use, short string, compare func(preset string, out io.Writer) error) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		if o.dtype != "bfloat16" && o.dtype != "float32" {
			return fmt.Errorf("--dtype %q: want bfloat16 or float32", o.dtype)
		}
		o.BFloat16 = o.dtype == "bfloat16"
		for _, preset := range o.presets {
			if err := compare(preset, cmd.OutOrStdout()); err != nil {
				return err
			}
		}
		return nil
	}}
	flags := cmd.Flags()
	flags.StringVar(&o.python, "python", "python3", "interpreter with PyTorch (scripts/oracle/requirements.txt)")
	flags.StringVar(&o.device, "device", "cpu", "PyTorch's device")
	flags.StringVar(&o.dtype, "dtype", "float32", "type to compute in: float32 or bfloat16; the weights are float32")
	flags.StringVar(&o.Backend, "backend", "auto", "posttrain's engine")
	flags.StringSliceVar(&o.presets, "preset", o.presets, "models, with random weights")
	flags.IntVar(&o.rounds, "rounds", 7, "rounds measured; 5 where one takes more than 3 s")
	return cmd
}

// peer is one of Python's sides.
func (o *options) peer(name, script string, args ...string) launch {
	args = append([]string{"internal/speed/" + script, "--device", o.device, "--dtype", o.dtype}, args...)
	return launch{name, o.python, args}
}
