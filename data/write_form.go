package data

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"strings"

	"github.com/parquet-go/parquet-go"
)

// table is a set of records on its way to a file.
type table struct {
	n       int
	value   func(i int) (any, error)  // record i as encoding/json writes it
	parquet func(out io.Writer) error // all records
}

// CheckWritable says whether records can be written under a name, nil when they can.
func CheckWritable(name string) error {
	if ext, _ := formOf(name); formats[ext].rows == nil {
		return fmt.Errorf("%s: extension %q: want .jsonl, .json or .parquet, each also with .gz", name, path.Ext(strings.ToLower(name)))
	}
	return nil
}

// formOf is the extension of a file without .gz, in small letters, and whether it had .gz.
func formOf(name string) (ext string, zipped bool) {
	base, zipped := strings.CutSuffix(strings.ToLower(filepath.ToSlash(name)), ".gz")
	return path.Ext(base), zipped
}

// writeTable writes records in the form that the file's name asks for, whole or not at all.
func writeTable(name string, t table) error {
	if err := CheckWritable(name); err != nil {
		return err
	}
	ext, zipped := formOf(name)
	write := map[string]func(io.Writer) error{".jsonl": t.lines, ".json": t.array, ".parquet": t.parquet}[ext]
	if !zipped {
		return writeAtomic(name, write)
	}
	return writeAtomic(name, func(w io.Writer) error {
		z := gzip.NewWriter(w)
		if err := write(z); err != nil {
			return err
		}
		return z.Close()
	})
}

// lines writes one JSON text a line.
func (t table) lines(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false) // <think> stays readable
	for i := range t.n {
		value, err := t.value(i)
		if err != nil {
			return err
		}
		if err := enc.Encode(value); err != nil {
			return err
		}
	}
	return nil
}

// array writes a JSON array, one element a line.
func (t table) array(w io.Writer) error {
	for i := range t.n {
		value, err := t.value(i)
		if err != nil {
			return err
		}
		line, err := marshal(value)
		if err != nil {
			return err
		}
		sep := ",\n"
		if i == 0 {
			sep = "[\n"
		}
		if _, err := fmt.Fprintf(w, "%s%s", sep, line); err != nil {
			return err
		}
	}
	end := "\n]\n"
	if t.n == 0 {
		end = "[]\n"
	}
	_, err := io.WriteString(w, end)
	return err
}

// writeParquet writes rows with a schema that their type or the options give.
func writeParquet[T any](w io.Writer, rows []T, options ...parquet.WriterOption) (err error) {
	defer recovered(&err)
	out := parquet.NewGenericWriter[T](w, append(options, parquet.Compression(&parquet.Zstd))...)
	if _, err := out.Write(rows); err != nil {
		return err
	}
	return out.Close()
}
