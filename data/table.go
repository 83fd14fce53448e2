package data

import (
	"fmt"
	"io/fs"
	"reflect"
	"strings"
)

// ReadTable reads the rows of a file, .jsonl, .json or .parquet, each also with .gz, as structs R whose json tags name
// the columns. NaN, which Python writes for a number that is missing, is null. of makes a record of each row, and names
// what may come once in the file ("question 81"; "": nothing). fsys nil is the operating system's.
func ReadTable[R, T any](fsys fs.FS, path string,
	of func(r *R, source string, report *Report) (record T, once string, err error)) ([]T, *Report, error) {
	var columns []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[R]()) {
		columns = append(columns, strings.Split(f.Tag.Get("json"), ",")[0])
	}
	places := map[string]string{}
	return NewStream(path, PythonRows(fsys, path, columns...), func(row Row, report *Report) (T, string, error) {
		var r R
		if err := Unmarshal(row.Text, &r); err != nil {
			return *new(T), "", err
		}
		record, once, err := of(&r, row.Source, report)
		if first, twice := places[once]; err == nil && once != "" && twice {
			err = fmt.Errorf("%s is at %s already: want it once", OneLine(once, 80), first)
		}
		places[once] = row.Source
		return record, "", err
	}).Collect()
}
