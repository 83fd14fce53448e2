package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/internal/backend"
)

func newVersion(s streams) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the versions of this program and its modules, and which engines are here",
		Long: "Print the versions of posttrain and of the modules it was built with, and the engines that --backend\n" +
			"takes: what is present, what is missing and how to get it. The libraries that are found are loaded, to\n" +
			"see whether they work. Nothing is ever downloaded without being asked for.",
		Example: "  posttrain version", Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := printVersion(s.out); err != nil {
				return err
			}
			fmt.Fprintln(s.out)
			return printBackends(s.out)
		},
	}
}

// printBackends lists the engines.
func printBackends(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
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
}

// engines are the modules whose versions decide the numbers.
var engines = []string{
	"github.com/gomlx/gomlx", "github.com/gomlx/compute", "github.com/gomlx/compute-onnx", "github.com/gomlx/go-xla",
}

// version gives the main module's version, such as v1.2.3, or (devel).
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

func printVersion(out io.Writer) error {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return errors.New("this binary has no build information")
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "posttrain\t%s\n", version())
	fmt.Fprintf(w, "go\t%s %s/%s\n", info.GoVersion, runtime.GOOS, runtime.GOARCH)
	for _, first := range []bool{true, false} {
		for _, m := range info.Deps {
			if slices.Contains(engines, m.Path) == first {
				fmt.Fprintf(w, "%s\t%s\n", m.Path, m.Version)
			}
		}
	}
	return w.Flush()
}
