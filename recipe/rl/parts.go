package rl

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/recipe"
)

// Parts say which rows choose the best checkpoint, and which the result is measured on: shares of the training data,
// drawn by the seed, or files of their own.
type Parts struct {
	ValidationFraction float64 `yaml:"validation_fraction" want:">0 <1" default:"0.09" paper:"0.09" help:"share of the items that chooses the best checkpoint"`
	Validation         string  `yaml:"validation,omitempty" hub:"data" paper:"" help:"the file of these items, instead of the share"`
	TestFraction       float64 `yaml:"test_fraction" want:">=0 <1" default:"0.1" paper:"0.1" help:"share of the items that the result is measured on, before and after; 0: no test"`
	Test               string  `yaml:"test,omitempty" hub:"data" paper:"" help:"the file of these items, instead of the share"`
}

// ownFiles are the files of parts that have one of their own, "" where a share of the training data is the part.
func (p Parts) ownFiles() [3]string { return [3]string{ci.Validation: p.Validation, ci.Test: p.Test} }

// Unshared are the shares of parts that have files of their own. Keys are of the whole options.
func (p Parts) Unshared(g *config.Given) config.Idle {
	idle := config.Idle{}
	for file, given := range map[string]string{"data.validation": p.Validation, "data.test": p.Test} {
		if key := file + "_fraction"; given != "" {
			idle.Add(fmt.Sprintf("%s %s names the file of these items; remove one of the two (for one run: --set %s=)",
				file, g.Show(file), key), key)
		}
	}
	return idle
}

// shares are the shares of the training data that are held out for validation and for the test.
func (p Parts) shares() (validation, test float64) {
	validation, test = p.ValidationFraction, p.TestFraction
	if p.Validation != "" {
		validation = 0
	}
	if p.Test != "" {
		test = 0
	}
	return validation, test
}

// HasTest says that there is a test.
func (p Parts) HasTest() bool { return p.Test != "" || p.TestFraction > 0 }

// Describe names the parts in words.
func (p Parts) Describe() string {
	return fmt.Sprintf("%s for validation and %s for the test",
		cmp.Or(p.Validation, fmt.Sprintf("a share of %v", p.ValidationFraction)),
		cmp.Or(p.Test, fmt.Sprintf("a share of %v", p.TestFraction)))
}

// CheckShares refuses shares that leave nothing.
func (p Parts) CheckShares(faults *fault.Faults) {
	if v, t := p.shares(); v < 1 && t < 1 && v+t >= 1 {
		faults.Add("test_fraction", t, "with data.validation_fraction %v nothing is left to train on: want a sum "+
			"below 1", v)
	}
}

// Read reads the rows to train on, those for validation and those for the test, each of which has one at least unless
// there is no test. same gives what two rows have in common that are the same.
func Read[R any](f recipe.Files, p Parts, seed uint64, read func(name string) ([]R, error), same func(R) string,
	warn func(format string, args ...any)) (parts [3][]R, err error) {
	all, from, err := recipe.ReadAll(f, read)
	if err != nil {
		return parts, err
	}
	validation, test := p.shares()
	key := strconv.Itoa
	if len(f.TrainFiles) > 1 { // files may have the same rows, of which one part has all
		key = func(i int) string { return same(all[i]) }
	}
	members := recipe.Together(len(all), key)
	trained, second, third := ci.Split(len(members), validation, test, seed)
	first := slices.Concat(data.Pick(members, trained)...)
	first = data.Pick(first, f.Weigh(data.Pick(from, first)))
	parts[ci.Train] = data.Pick(all, first)
	for part, some := range [][]int{ci.Validation: second, ci.Test: third} {
		for _, k := range some {
			parts[part] = append(parts[part], all[members[k][0]])
		}
	}
	for part, file := range p.ownFiles() {
		if file == "" {
			continue
		}
		if parts[part], err = read(file); err != nil {
			return parts, err
		}
	}
	if len(parts[0]) == 0 || len(parts[1]) == 0 || len(parts[2]) == 0 && p.HasTest() {
		return parts,
			fmt.Errorf("%s: data.validation_fraction %v and data.test_fraction %v of %d items leave %d to train "+
				"on, %d for validation and %d for the test: want at least one of each", f.TrainFiles, validation,
				test, len(members), len(parts[0]), len(parts[1]), len(parts[2]))
	}
	warnOfOverlap(p, parts, same, warn)
	return parts, nil
}

// warnOfOverlap warns of held-out rows that are trained on, too: a file may have rows of another one, and rows twice.
func warnOfOverlap[R any](p Parts, parts [3][]R, same func(R) string, warn func(format string, args ...any)) {
	trained := map[string]bool{}
	for _, row := range parts[ci.Train] {
		trained[same(row)] = true
	}
	keys := [3]string{ci.Validation: "data.validation_fraction", ci.Test: "data.test_fraction"}
	for part, file := range p.ownFiles() {
		shared := 0
		for _, row := range parts[part] {
			if part != int(ci.Train) && trained[same(row)] {
				shared++
			}
		}
		if shared > 0 {
			warn("%s: %d of %d items are in the training data, too", cmp.Or(file, keys[part]), shared, len(parts[part]))
		}
	}
}
