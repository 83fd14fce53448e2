package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/posttrain/posttrain/federated"
	"github.com/posttrain/posttrain/federated/protocol"
)

// patterns are the columns of the table of speed-ups.
var patterns = []federated.Pattern{federated.OneSlow, federated.OneFast, federated.Geometric}

// compareSpeeds is the command speedup: FedPG's virtual time over AFedPG's for the same number of gradients, by how the
// agents' times are spread, beside the formula.
func compareSpeeds(ctx context.Context, args []string) error {
	t := traffic{Size: 100}
	flags := flag.NewFlagSet("speedup", flag.ExitOnError)
	flags.IntVar(&t.Agents, "agents", 8, "number of agents")
	flags.IntVar(&t.Rounds, "rounds", 400, "gradients of an agent, on average")
	flags.Parse(args)
	return t.speedups(ctx, os.Stdout)
}

// speedups prints the table, and the largest distance between a speed-up and its formula.
func (t traffic) speedups(ctx context.Context, out io.Writer) error {
	fmt.Fprintf(out, "%d agents, %d gradients an agent: FedPG's virtual time over AFedPG's, the formula in brackets.\n\n"+
		"| slowest over fastest | one slow agent | one fast agent | geometric |\n|---|---|---|---|\n", t.Agents, t.Rounds)
	worst := 0.0
	for _, ratio := range []float64{1, 2, 4, 8} {
		t.Ratio = ratio
		fmt.Fprintf(out, "| %g |", ratio)
		for _, p := range patterns {
			t.Pattern = p
			measured, formula, err := t.speedup(ctx)
			if err != nil {
				return err
			}
			worst = max(worst, math.Abs(measured/formula-1))
			fmt.Fprintf(out, " %.3f (%.3f) |", measured, formula)
		}
		fmt.Fprintln(out)
	}
	fmt.Fprintf(out, "\nThe largest difference from the formula is %.1f%%.\n", 100*worst)
	return nil
}

// speedup runs both methods.
func (t traffic) speedup(ctx context.Context) (measured, formula float64, err error) {
	ends := map[string]float64{}
	for _, method := range trafficMethods {
		all, err := t.cross(ctx, method)
		if err != nil {
			return 0, 0, fmt.Errorf("%s: %w", method, err)
		}
		ends[method] = all[len(all)-1].time
	}
	times, err := t.Pattern.Times(t.Agents, t.Ratio)
	if err != nil {
		return 0, 0, err
	}
	return ends[protocol.FedPG] / ends[protocol.AFedPG], federated.Speedup(times), nil
}
