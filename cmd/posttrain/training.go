package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/run"
)

// training is a command that runs a training recipe with options O.
type training[O any] struct {
	spec  *config.Spec[O]
	flags []config.Flag // that set keys
	place func(*O) *recipe.Place
	run   func(context.Context, O, run.Reporter) (*recipe.Result, error)
}

// command completes a cobra command, which has its texts.
func (t training[O]) command(s streams, cmd *cobra.Command) *cobra.Command {
	f := &trainFlags{command: t.spec.Command, known: t.flags}
	cmd.Args = noArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o, err := t.load(f, cmd)
		if err != nil {
			return err
		}
		result, err := t.run(cmd.Context(), *o, run.NewReporter(s.err, s.terminal, f.quiet))
		if stopped := (*recipe.Stopped)(nil); errors.As(err, &stopped) {
			return fmt.Errorf("%w %s: continue with %s", recipe.ErrInterrupted, stopped.Where, f.again(stopped.Dir))
		}
		if err == nil {
			fmt.Fprint(s.out, result.Summary)
		}
		return err
	}
	f.register(cmd)
	return cmd
}

// load reads the options from the file and the flags.
func (t training[O]) load(f *trainFlags, cmd *cobra.Command) (*O, error) {
	sets, err := f.overrides(cmd)
	if err != nil {
		return nil, err
	}
	path, err := f.path()
	if err != nil {
		return nil, err
	}
	o, err := t.spec.Load(config.Input{Path: path, Overrides: sets, Flags: f.known})
	if err != nil {
		return nil, err
	}
	*t.place(o) = recipe.Place{Out: f.out, Resume: f.resume}
	return o, nil
}
