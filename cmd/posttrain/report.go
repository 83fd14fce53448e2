package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/internal/run"
)

// summary makes a command print what the result of its recipe says.
func summary[O any, R fmt.Stringer](
	recipe func(context.Context, O, run.Reporter) (R, error),
) func(context.Context, O, run.Reporter) (string, error) {
	return func(ctx context.Context, o O, r run.Reporter) (string, error) {
		result, err := recipe(ctx, o, r)
		if err != nil {
			return "", err
		}
		return result.String(), nil
	}
}

// flagFault turns the fault of an option into a fault of the flag of the same name.
func flagFault(err error) error {
	if f, ok := errors.AsType[fault.Fault](err); ok {
		return usageError{fmt.Errorf("--%s %s: %s", strings.ReplaceAll(f.Key, "_", "-"), f.Value, f.Problem)}
	}
	return err
}

// answer prints what a recipe says, unless what comes before it failed.
func (s streams) answer(before error, recipe func() (string, error)) error {
	if before != nil {
		return before
	}
	said, err := recipe()
	fmt.Fprint(s.out, said)
	return flagFault(err)
}
