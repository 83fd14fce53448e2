package config

import (
	"cmp"
	"slices"
	"strings"
)

// A Fault is one thing that is wrong with a configuration.
type Fault struct {
	Place string // "configs/mappo.yaml:12", or "--prior"
	Text  string

	line int // orders the faults; noLine for overrides and faults without a line
}

const noLine = 1 << 30 // sorts after every line

func (f Fault) Error() string { return f.Place + ": " + f.Text }

// InFile says whether the fault is in a file, not on the command line.
func (f Fault) InFile() bool { return !strings.HasPrefix(f.Place, "--") }

// Faults are all that is wrong with a configuration, a line each.
type Faults []Fault

func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, fault := range f {
		lines[i] = fault.Error()
	}
	return strings.Join(lines, "\n")
}

// sortFaults orders faults by place: the file's lines, then the rest as they were found.
func sortFaults(faults Faults) Faults {
	slices.SortStableFunc(faults, func(a, b Fault) int { return cmp.Compare(a.line, b.line) })
	return faults
}
