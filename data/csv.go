package data

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
)

// ReadCSV reads a table of one row or more whose header has these columns, and hands on each row as cells by column.
func ReadCSV(fsys fs.FS, path string, columns []string, visit func(row map[string]string) error) error {
	file, err := Open(fsys, path)
	if err != nil {
		return err
	}
	defer file.Close()
	text, err := io.ReadAll(file)
	if err != nil {
		return Unreadable(path, "", err)
	}
	table, err := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(text, []byte("\ufeff")))).ReadAll()
	if err != nil {
		return fmt.Errorf("%s: bad csv: %w: the file is truncated or damaged", path, err)
	}
	if len(table) < 2 {
		return fmt.Errorf("%s: no rows: the file is empty", path)
	}
	header := table[0]
	if slices.ContainsFunc(columns, func(name string) bool { return !slices.Contains(header, name) }) {
		return fmt.Errorf("%s:1: found columns %s: want %s", path, List(header), strings.Join(columns, " and "))
	}
	for i, cells := range table[1:] {
		row := map[string]string{}
		for k, name := range header {
			row[name] = cells[k]
		}
		if err := visit(row); err != nil {
			return fmt.Errorf("%s: row %d: %w", path, i+1, err)
		}
	}
	return nil
}
