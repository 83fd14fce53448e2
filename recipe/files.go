package recipe

import (
	"strings"
	"unicode"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/internal/embedded"
)

// Files name what is trained on: the embedded data, or files, patterns and data sets of the hub, which are read one
// after the other. The rows of one that is named twice count twice.
type Files struct {
	TrainFiles config.Names `yaml:"train" want:"given" hub:"data" words:"embedded, a .jsonl, .json, .parquet, .csv or .tsv file (also .gz), or org/name on the hub" flag:"data" help:"training data: .jsonl, .json, .parquet, .csv or .tsv, also .gz, org/name[@revision][:config][:split] on the hub, or embedded; several with commas"`
	Columns    []string     `yaml:"columns,omitempty" words:"names such as prompt=question" flag:"columns" help:"columns by other names in the data, such as prompt=question,chosen=response_a"`
}

// Check refuses names that cannot be read together.
func (f Files) Check() []fault.Fault {
	faults := append(fault.Check(f), data.CheckColumns(f.Columns)...)
	if len(f.Columns) > 0 && f.TrainFiles.Are(embedded.Name) {
		faults.Add("columns", f.Columns, "the embedded data has the names that are read; remove it")
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

// ReadAll reads the rows of all files.
func ReadAll[T any](f Files, read func(name string) ([]T, error)) (all []T, err error) {
	for _, name := range f.TrainFiles {
		rows, err := read(name)
		if err != nil {
			return nil, err
		}
		all = append(all, rows...)
	}
	return all, nil
}
