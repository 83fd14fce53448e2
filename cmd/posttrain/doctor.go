package main

import (
	"cmp"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/doctor"
)

func newDoctor(s streams) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "doctor RUN",
		Short: "Say what goes wrong in a training run, and whether its files and data are as they were",
		Long: "Read the log of a training run and say what goes wrong in it: a loss that is not a number, squeezing\n" +
			"(chosen and rejected answers both become less likely), entropy that collapses or blows up, a broken\n" +
			"format, length hacking, KL blow-up, dead groups, overfitting. Each finding has the numbers and steps\n" +
			"that show it, and what may help. RUN is a run folder, or its metrics.jsonl. The run may still go on;\n" +
			"ci-rl and grpo say each finding, once. When it has ended, the files of its folder, and the data and\n" +
			"models that it was made of, are compared with the hashes in its manifest.json: run it in the folder\n" +
			"that the run was started in. The exit code is 0 where nothing is found, 1 where something is.",
		Example: "  posttrain doctor runs/mappo\n" +
			"  posttrain doctor --json runs/mappo/metrics.jsonl",
		Args: oneArg("run folder, or its metrics.jsonl"),
		RunE: func(_ *cobra.Command, args []string) error {
			r, err := doctor.Look(args[0])
			if err != nil {
				return err
			}
			return cmp.Or(s.print(asJSON, r, strings.Join(r.Lines(), "\n")+"\n"), r.Err())
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// print prints a value as JSON, or what it says in words.
func (s streams) print(asJSON bool, v any, words string) error {
	if asJSON {
		return data.PrintJSON(s.out, v)
	}
	_, err := io.WriteString(s.out, words)
	return err
}
