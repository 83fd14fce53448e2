package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/run"
)

func newVerify(s streams) *cobra.Command {
	return &cobra.Command{
		Use:   "verify RUN",
		Short: "Compare a finished run and its data with the receipt that it left",
		Long: "Compare the files of a finished run, and the data and models that it was made of, with the hashes in\n" +
			"its receipt.json. Every difference is named: a key of the config, a line of a .jsonl file, any other\n" +
			"file. Paths of data and models are those of the config; run it in the folder that the run was started\n" +
			"in. The exit code is 0 where all is as it was, 1 where something differs.",
		Example: "  posttrain verify runs/mappo",
		Args:    oneArg("run folder"),
		RunE: func(_ *cobra.Command, args []string) error {
			r, err := run.ReadReceipt(args[0])
			if err != nil {
				return err
			}
			differences := r.Check(args[0])
			for _, d := range differences {
				fmt.Fprintln(s.out, d)
			}
			if differences != nil {
				return fmt.Errorf("%s: differences from its receipt: %d", args[0], len(differences))
			}
			_, err = fmt.Fprintf(s.out, "%s: %d files of the run and %d of its inputs are those of the receipt (%s, "+
				"%d steps, engine %s, seed %d)\n",
				args[0], len(r.Results), len(r.Inputs), r.Command, r.Steps, r.Engine, r.Seed)
			return err
		},
	}
}
