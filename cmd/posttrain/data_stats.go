package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/recipe/inspect"
)

func newStats(s streams) *cobra.Command {
	var o inspect.Options
	var out string
	var f fetcher
	cmd := &cobra.Command{
		Use:   "stats FILE",
		Short: "Count what a data file holds, and draw it",
		Long: "Print what a file of any kind that data check reads holds: rows, domains and principles, labels,\n" +
			"gaps of pairs with scores, lengths of texts in characters. With --out, lengths and gaps are drawn as\n" +
			"histograms. Rows that cannot be read are left out: data check names them.",
		Example: "  posttrain data stats dataset.json\n" +
			"  posttrain data stats --out pairs.png pairs.jsonl",
		Args: oneArg("data file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.pinFiles(cmd.Context(), args, s.reporter()); err != nil {
				return err
			}
			lines, err := inspect.Stats(cmd.Context(), args[0], out, o)
			if err != nil {
				return flagFault(err)
			}
			fmt.Fprintln(s.out, strings.Join(lines, "\n"))
			return nil
		},
	}
	addScoreFlag(cmd, &o.PreferenceOptions)
	f.register(cmd)
	cmd.Flags().StringVar(&o.Kind, "kind", "",
		"what the file holds: items, pairs, demonstrations, labelled or cases (default: what the first row looks like)")
	cmd.Flags().StringVar(&out, "out", "", "picture to draw: a file .png (default: nothing is drawn)")
	return cmd
}
