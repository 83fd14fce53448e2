package main

import (
	"cmp"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/internal/backend"
)

func newBackends(s streams) *cobra.Command {
	measure := false
	cmd := &cobra.Command{
		Use: "backends", Short: "List the engines: what is present, what is missing and how to get it",
		Long: "List the engines that --backend takes, and load the libraries that are found, to see whether they\n" +
			"work. Nothing is ever downloaded without being asked for.\n\n" +
			"With --measure, measure how fast the engines multiply float32 matrices on this machine, in seconds, and keep\n" +
			"it: --backend auto then trains on XLA where that is the faster one.",
		Example: "  posttrain backends\n  posttrain backends --measure", Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			if measure {
				return measureBackends(s)
			}
			w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
			for _, b := range backend.List() {
				b = b.Load()
				fmt.Fprintf(w, "%s\t%s\t%s\n", b.Name, b.State(), b.Detail)
				if !b.Present && b.HowToGet != "" {
					fmt.Fprintf(w, "\t\tget it: %s\n", b.HowToGet)
				}
			}
			fmt.Fprintf(w, "\t\tplugins of xla are looked for in %s\n",
				cmp.Or(strings.Join(backend.PluginFolders(), ", "), "no folder"))
			return w.Flush()
		},
	}
	cmd.Flags().BoolVar(&measure, "measure", false, "measure the engines' matrix products, for --backend auto")
	return cmd
}

// measureBackends prints rates as they are measured, and keeps them.
func measureBackends(s streams) error {
	fmt.Fprintf(s.out, "Products of float32 matrices, [1024, width] by [width, 4·width], in GFLOP/s:\n\n%-10s", "")
	for _, width := range backend.Widths {
		fmt.Fprintf(s.out, "%12s", fmt.Sprint("width ", width))
	}
	rates := backend.Measure(func(spec string, rates []float64, err error) {
		fmt.Fprintf(s.out, "\n%-10s", spec)
		for _, r := range rates {
			fmt.Fprintf(s.out, "%12.1f", r/1e9)
		}
		if err != nil {
			fmt.Fprintf(s.out, "  not measured: %v", err)
		}
	})
	fmt.Fprintln(s.out)
	path, err := rates.Keep()
	if err == nil {
		fmt.Fprintf(s.out, "\nKept in %s, for --backend auto.\n", path)
	}
	return err
}
