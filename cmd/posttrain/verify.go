package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe/verify"
)

func newVerify(s streams) *cobra.Command {
	replays, seed, sign, key := 0, uint64(0), "", ""
	cmd := &cobra.Command{
		Use:   "verify RUN",
		Short: "Compare a finished run and its data with the receipt that it left; repeat parts of it",
		Long: "Compare the files of a finished run, and the data and models that it was made of, with the hashes in\n" +
			"its receipt.json. Every difference is named: a key of the config, a line of a .jsonl file, any other\n" +
			"file. With --replay the training from one kept checkpoint to the next is repeated in a temporary\n" +
			"folder, and the weights must come out the same, bit for bit. Paths of data and models are those of\n" +
			"the config; run it in the folder that the run was started in. The exit code is 0 where all is as it\n" +
			"was, 1 where something differs.\n" +
			"With --sign the owner of an Ed25519 key (openssl genpkey -algorithm ed25519) signs the receipt, after\n" +
			"the comparison; with --key it must be signed by the owner of that key (openssl pkey -pubout).",
		Example: "  posttrain verify runs/mappo\n  posttrain verify runs/mappo --replay 2\n" +
			"  posttrain verify runs/mappo --sign key.pem\n  posttrain verify runs/mappo --key public.pem",
		Args: oneArg("run folder"),
	}
	flags := cmd.Flags()
	flags.IntVar(&replays, "replay", 0, "parts between two checkpoints to repeat, drawn at random (default none)")
	flags.Uint64Var(&seed, "seed", 0, "seed of the draw (default: another every time)")
	flags.StringVar(&sign, "sign", "", "private key, a PEM file: sign the receipt")
	flags.StringVar(&key, "key", "", "public key, a PEM file, whose owner must have signed the receipt")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if replays < 0 {
			return usageError{fmt.Errorf("--replay %d: want 0 or more", replays)}
		}
		if !flags.Changed("seed") {
			seed = rand.Uint64()
		} else if replays == 0 {
			return usageError{fmt.Errorf("--seed: it draws what --replay repeats; name a number with --replay")}
		}
		if key != "" {
			if err := run.CheckSignature(args[0], key); err != nil {
				return err
			}
		}
		if err := checkReceipt(s.out, args[0]); err != nil {
			return err
		}
		if err := repeatSteps(cmd.Context(), s, args[0], replays, seed); err != nil || sign == "" {
			return err
		}
		return run.SignReceipt(args[0], sign)
	}
	return cmd
}

func checkReceipt(out io.Writer, dir string) error {
	r, err := run.ReadReceipt(dir)
	if err != nil {
		return err
	}
	if note := r.Note(); note != "" {
		fmt.Fprintf(out, "note: %s\n", note)
	}
	if err := printDifferences(out, dir, "its receipt", r.Check(dir)); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s: %d files of the run and %d of its inputs are those of the receipt (%s, %d steps, "+
		"engine %s, seed %d)\n", dir, len(r.Results), len(r.Inputs), r.Command, r.Steps, r.Engine, r.Seed)
	return err
}

// printDifferences is an error if there are any.
func printDifferences(out io.Writer, dir, from string, differences []string) error {
	for _, d := range differences {
		fmt.Fprintln(out, d)
	}
	if len(differences) > 0 {
		return fmt.Errorf("%s: differences from %s: %d", dir, from, len(differences))
	}
	return nil
}

// repeatSteps repeats parts of a run, or all where there are no more.
func repeatSteps(ctx context.Context, s streams, dir string, n int, seed uint64) error {
	if n == 0 {
		return nil
	}
	intervals, err := verify.Intervals(dir)
	if err != nil {
		return err
	}
	order := rand.New(rand.NewPCG(seed, 0)).Perm(len(intervals))
	for _, i := range order[:min(n, len(order))] {
		differences, err := verify.Replay(ctx, dir, intervals[i], s.reporter())
		if err == nil {
			err = printDifferences(s.out, dir, intervals[i].String()+" repeated", differences)
		}
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(s.out, "%s: %v repeated: the same bits\n", dir, intervals[i]); err != nil {
			return err
		}
	}
	return nil
}
