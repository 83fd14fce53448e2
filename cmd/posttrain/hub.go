package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/hub"
	"github.com/posttrain/posttrain/run"
	"github.com/posttrain/posttrain/train"
)

// fetcher brings models of the hub to this machine, for commands that take ids.
type fetcher struct{ offline bool }

func (f *fetcher) register(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.offline, "offline", false,
		"take models that --model or the config names by org/name from the cache alone")
}

// pin gives each id in options, a pointer, the commit that it means, and fetches its files.
func (f *fetcher) pin(ctx context.Context, options any, r run.Reporter) error {
	h := hub.FromEnv()
	h.Offline = h.Offline || f.offline
	err := h.Pin(ctx, options, r)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w while a model was downloaded: the same command continues", train.ErrInterrupted)
	}
	return err
}
