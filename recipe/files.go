package recipe

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/internal/embedded"
)

// Files name what is trained on: the embedded data, or files, patterns and data sets of the hub, which are read one
// after the other. The rows of one that is named twice count twice, and so do those with the weight 2.
type Files struct {
	TrainFiles config.Names `yaml:"train" want:"given" hub:"data" words:"embedded, a .jsonl, .json, .parquet, .csv or .tsv file (also .gz), or org/name on the hub" flag:"data" help:"training data: .jsonl, .json, .parquet, .csv or .tsv, also .gz, org/name[@revision][:config][:split] on the hub, or embedded; several with commas, NAME:2 for its rows twice an epoch"`
	Weights    []float64    `yaml:"weights,omitempty" words:"numbers above 0, one for each of data.train" help:"how often an epoch has the rows of each of data.train, such as [2, 0.5]: twice, and a drawn half"`
	Columns    []string     `yaml:"columns,omitempty" words:"names such as prompt=question" flag:"columns" help:"columns by other names in the data, such as prompt=question,chosen=response_a"`
}

// Check refuses names that cannot be read together.
func (f Files) Check() []fault.Fault {
	faults := append(fault.Check(f), data.CheckColumns(f.Columns)...)
	if len(f.Columns) > 0 && f.TrainFiles.Are(embedded.Name) {
		faults.Add("columns", f.Columns, "the embedded data has the names that are read; remove it")
	}
	odd := func(w float64) bool { return !(w > 0 && w <= 100) }
	if n := len(f.Weights); n > 0 && n != len(f.TrainFiles) {
		faults.Add("weights", f.Weights, "want %d, one for each of data.train", len(f.TrainFiles))
	} else if slices.ContainsFunc(f.Weights, odd) {
		faults.Add("train", f.Names(), "want weights above 0, at most 100")
	}
	for _, name := range f.TrainFiles {
		odd := func(r rune) bool { return !unicode.IsPrint(r) }
		switch {
		case name == "" || strings.ContainsFunc(name, odd):
			faults.Add("train", name, "want a name in printable letters, of a file or data set")
		case name == embedded.Name && len(f.TrainFiles) > 1:
			faults.Add("train", name, "the embedded data is not mixed with files: remove one of the two")
		}
	}
	return faults
}

var weighted = regexp.MustCompile(`^(.+):(\d+(?:\.\d+)?)$`)

// Resolve takes the weights of names such as pairs.jsonl:2 out of them.
func (f *Files) Resolve(*config.Given) {
	f.TrainFiles = slices.Clone(f.TrainFiles)
	for i, name := range f.TrainFiles {
		m := weighted.FindStringSubmatch(name)
		if _, err := os.Stat(name); m == nil || err == nil {
			continue
		}
		if f.Weights == nil {
			f.Weights = slices.Repeat([]float64{1}, len(f.TrainFiles))
		}
		if f.TrainFiles[i] = m[1]; i < len(f.Weights) {
			f.Weights[i], _ = strconv.ParseFloat(m[2], 64)
		}
	}
}

// Names are the files with their weights.
func (f Files) Names() string {
	names := slices.Clone(f.TrainFiles)
	for i, weight := range f.Weights {
		names[i] += fmt.Sprintf(":%v", weight)
	}
	return names.String()
}

// ReadAll reads the rows of all files; from says of each which file has it.
func ReadAll[T any](f Files, read func(name string) ([]T, error)) (all []T, from []int, err error) {
	for i, name := range f.TrainFiles {
		rows, err := read(name)
		if err != nil {
			return nil, nil, err
		}
		all, from = append(all, rows...), append(from, slices.Repeat([]int{i}, len(rows))...)
	}
	return all, from, nil
}

// Weigh lists rows of files as often as the weights say. A fraction is a share of a file's rows, which each run draws
// alike.
func (f Files) Weigh(from []int) (rows []int) {
	for i := range f.TrainFiles {
		var own []int
		for row, file := range from {
			if file == i {
				own = append(own, row)
			}
		}
		weight := 1.0
		if f.Weights != nil {
			weight = f.Weights[i]
		}
		whole := int(weight)
		_, part := data.Split(len(own), weight-float64(whole), uint64(i))
		rows = slices.Concat(rows, slices.Repeat(own, whole), data.Pick(own, part))
	}
	return rows
}
