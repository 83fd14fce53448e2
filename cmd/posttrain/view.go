package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/recipe/view"
)

func newView(s streams) *cobra.Command {
	o := view.Options{}
	cmd := &cobra.Command{
		Use:   "view RUN...",
		Short: "Show runs beside one another on a web page of this machine",
		Long: "Serve a web page that shows runs beside one another: curves over one another, samples with their\n" +
			"keywords marked, differences of the configs, cases of PrivacyLens. It follows runs under way. A RUN\n" +
			"is a run folder (also of eval ci and eval privacylens), a folder of TRL with trainer_state.json, or\n" +
			"a file: metrics.jsonl, trainer_state.json, or a log of verl. The page loads nothing from a network.\n" +
			"Ctrl-C ends the server. With --out the page goes into a file, for others to open without a server.",
		Example: "  posttrain view runs/mappo runs/dpo\n" +
			"  posttrain view runs/ci-rl --listen 127.0.0.1:6006\n" +
			"  posttrain view runs/mappo runs/dpo --out page.html",
		Args: oneOrMore("run folder"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("listen") && o.Out != "" {
				return usageError{fmt.Errorf("--listen: with --out the page is written, not served: want one of them")}
			}
			o.Runs = args
			o.Ready = func(url string) { fmt.Fprintf(s.out, "the runs are at %s (Ctrl-C ends this)\n", url) }
			err := view.Run(cmd.Context(), o, s.reporter())
			if err == nil && o.Out != "" {
				_, err = fmt.Fprintf(s.out, "the page is written: %s\n", o.Out)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&o.Listen, "listen", "127.0.0.1:0", "address and port to serve on; port 0 takes a free one")
	cmd.Flags().StringVar(&o.Out, "out", "", "write the page into this HTML file, with all that it shows")
	return cmd
}
