package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/recipe"
)

// sweepable is a command that trains once, or with its flag for sweeps several times.
func sweepable[O any, R fmt.Stringer](s streams, sweeps *recipe.Sweeps[O],
	train func(context.Context, O, run.Reporter) (R, error), cmd *cobra.Command) *cobra.Command {
	c := configured[O]{spec: sweeps.Spec, run: summary(train)}
	f := c.register(cmd)
	var axes []string
	cmd.Flags().StringArrayVar(&axes, "sweep", nil, "train once for each value of a key, such as "+
		sweeps.Example+", and compare the runs (may be repeated: a grid)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if len(axes) == 0 && (f.explain || !sweeps.In(f.resume)) {
			return c.execute(s, f, cmd)
		}
		swept, err := planSweep(sweeps, f, axes, cmd)
		if err != nil {
			return err
		}
		if f.explain { // input allows everything, since nothing runs
			_, err = fmt.Fprint(s.out, swept.Explain())
			return err
		}
		swept.Fetch = func(ctx context.Context, o *O, r run.Reporter) error { return f.fetcher.pin(ctx, o, r) }
		f.needs = swept.Allow
		table, err := swept.Train(cmd.Context(), run.NewReporter(s.err, s.terminal, f.quiet))
		if err != nil {
			return f.ended(err)
		}
		_, err = fmt.Fprint(s.out, table)
		return err
	}
	return cmd
}

// planSweep reads a new sweep from the command line, or the one to continue from its folder.
func planSweep[O any](sweeps *recipe.Sweeps[O], f *configFlags, axes []string, cmd *cobra.Command) (*recipe.Sweep[O], error) {
	sets, err := f.overrides(cmd)
	if err != nil {
		return nil, err
	}
	path, err := f.path()
	if err != nil {
		return nil, err
	}
	in, err := f.input(path, sets)
	switch {
	case err != nil:
		return nil, err
	case f.resume == "":
		return sweeps.New(in, axes, f.out)
	case !sweeps.In(f.resume):
		return nil, usageError{fmt.Errorf("--sweep: --resume %s is a single run, which has no sweep: remove one of "+
			"the two", f.resume)}
	case len(axes) > 0 || len(sets) > 0 || f.config != "":
		return nil, usageError{fmt.Errorf("--resume %s: a sweep continues with the values and configs in its folder: "+
			"want no other flag that sets them", f.resume)}
	}
	return sweeps.Open(f.resume, in.Allow)
}
