package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

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
			if asJSON {
				err = writeJSON(s, r)
			} else {
				_, err = fmt.Fprintln(s.out, strings.Join(r.Lines(), "\n"))
			}
			if err != nil {
				return err
			}
			return r.Err()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// writeJSON prints a value for programs, and for people who look.
func writeJSON(s streams, v any) error {
	out := json.NewEncoder(s.out)
	out.SetEscapeHTML(false)
	out.SetIndent("", "  ")
	return out.Encode(v)
}
