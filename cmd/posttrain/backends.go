package main

import (
	"cmp"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/backend"
)

func newBackends(s streams) *cobra.Command {
	return &cobra.Command{
		Use: "backends", Short: "List the engines: what is present, what is missing and how to get it",
		Long: "List the engines that --backend takes, and load the libraries that are found, to see whether they\n" +
			"work. Nothing is ever downloaded without being asked for.",
		Example: "  posttrain backends", Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
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
}
