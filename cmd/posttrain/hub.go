package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/internal/hub"
	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/train"
)

// fetcher brings models and data sets of the hub to this machine, for commands that take ids.
type fetcher struct {
	offline bool
	hub     *hub.Hub // nil: not asked yet
}

func (f *fetcher) register(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.offline, "offline", false,
		"take models and data sets that flags or the config name by org/name from the cache alone")
}

// pinFiles is pin of the data files that a command takes as arguments.
func (f *fetcher) pinFiles(ctx context.Context, names []string, r run.Reporter) error {
	for i := range names {
		o := struct {
			File string `hub:"data"`
		}{names[i]}
		if err := f.pin(ctx, &o, r); err != nil {
			return err
		}
		names[i] = o.File
	}
	return nil
}

// pin gives each id in options, a pointer, the commit that it means, and fetches its files.
func (f *fetcher) pin(ctx context.Context, options any, r run.Reporter) error {
	return f.pinBy(ctx, hub.AllUses, options, r)
}

// pinBy is pin of what has some uses.
func (f *fetcher) pinBy(ctx context.Context, of hub.Uses, options any, r run.Reporter) error {
	if f.hub == nil {
		f.hub = hub.FromEnv()
		f.hub.Offline = f.hub.Offline || f.offline
	}
	err := f.hub.Pin(ctx, options, of, r)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w while a model or data set was downloaded: the same command continues",
			train.ErrInterrupted)
	}
	return err
}
