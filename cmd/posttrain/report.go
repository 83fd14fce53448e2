package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/posttrain/posttrain/internal/config/fault"
)

// flagFault turns the fault of an option into that of the flag of the same name.
func flagFault(err error) error {
	if f, ok := errors.AsType[fault.Fault](err); ok {
		return usageError{fmt.Errorf("--%s %s: %s", strings.ReplaceAll(f.Key, "_", "-"), f.Value, f.Problem)}
	}
	return err
}
