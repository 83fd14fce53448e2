package main

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

func newVersion(s streams) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the versions of posttrain and of the modules it was built with",
		Example: "  posttrain version", Args: noArgs,
		RunE: func(*cobra.Command, []string) error { return printVersion(s.out) },
	}
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
