package recipe

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/internal/files"
	"github.com/posttrain/posttrain/train"
)

// Mix names what is trained on: the embedded data, or files, patterns and data sets of the hub, each of which is a
// source.
type Mix struct {
	Train   config.Names `yaml:"train" want:"given" hub:"data" words:"embedded, a .jsonl, .json or .parquet file (also .gz), or org/name on the hub" flag:"data" help:"training data: .jsonl, .json or .parquet, also .gz, org/name[@revision][:config][:split] on the hub, or embedded; several with commas"`
	Weights []float64    `yaml:"weights,omitempty" want:">0" flag:"data-weights" help:"in which proportion an epoch draws rows of several sources, such as 3,1; empty: each row once"`
}

// Check refuses names that cannot be read together, and weights that belong to no source.
func (m Mix) Check() []fault.Fault {
	faults := fault.Check(m)
	for i, name := range m.Train {
		odd := func(r rune) bool { return !unicode.IsPrint(r) }
		switch {
		case name == "" || strings.ContainsFunc(name, odd):
			faults.Add("train", name, "want a name in printable letters, of a file or data set")
		case slices.Contains(m.Train[:i], name):
			faults.Add("train", name, "it is named twice: name it once; data.weights says how often its rows are "+
				"drawn")
		case name == embedded.Name && len(m.Train) > 1:
			faults.Add("train", name, "the embedded data is not mixed with files: remove one of the two")
		}
	}
	switch n := len(m.Weights); {
	case n > 0 && len(m.Train) == 1:
		faults.Add("weights", m.Weights, "they mix several sources, and data.train names one; remove it")
	case n > 0 && n != len(m.Train):
		faults.Add("weights", m.Weights, "data.train names %d sources: want %d weights", len(m.Train), len(m.Train))
	}
	return faults
}

// Describe names the sources with their weights.
func (m Mix) Describe() string {
	if len(m.Weights) == 0 {
		return m.Train.String()
	}
	var all []string
	for i, name := range m.Train {
		all = append(all, fmt.Sprintf("%s (weight %v)", name, m.Weights[i]))
	}
	return strings.Join(all, ", ")
}

// CheckFiles refuses a file that two of the names mean.
func (m Mix) CheckFiles() error {
	by := map[string]string{}
	for _, name := range m.Train {
		for _, path := range files.Match(name) {
			path = filepath.Clean(path)
			if first, twice := by[path]; twice {
				return fmt.Errorf("data.train: %s is in %q and in %q: want each file once", path, first, name)
			}
			by[path] = name
		}
	}
	return nil
}

// Of gives the mix of examples that lie source by source, sizes of each.
func (m Mix) Of(sizes ...int) train.Mix {
	if len(m.Train) == 1 {
		return train.Mix{}
	}
	mix := train.Mix{}
	if len(m.Weights) > 0 {
		mix.Weights = m.Weights
	}
	for k, n := range sizes {
		mix.Part = append(mix.Part, slices.Repeat([]int{k}, n)...)
	}
	return mix
}

// ReportMix says how many rows of each source an epoch has, and refuses a weight that gives its source none.
func (r *Run) ReportMix(m Mix, mix train.Mix) error {
	if len(m.Train) == 1 {
		return nil
	}
	sizes := mix.Sizes(len(m.Train))
	shares := sizes
	if mix.On() {
		shares = mix.Shares()
	}
	r.Say("an epoch has %d rows of %d sources:", len(mix.Part), len(sizes))
	for k, name := range m.Train {
		switch {
		case sizes[k] == 0:
			return fmt.Errorf("data.train: no row of %s is left to train on: hold less out, or remove it", name)
		case shares[k] == 0: // of a mix with weights
			return fmt.Errorf("data.weights: with %v an epoch of %d rows has none of %s: want a larger weight",
				m.Weights[k], len(mix.Part), name)
		}
		r.Say("  %s: %d rows, %.2f times its %d", name, shares[k], float64(shares[k])/float64(sizes[k]), sizes[k])
	}
	return nil
}

// Each reads the sources one after the other.
func Each[T any](m Mix, read func(name string) (T, error)) (all []T, err error) {
	if err := m.CheckFiles(); err != nil {
		return nil, err
	}
	for _, name := range m.Train {
		one, err := read(name)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}
