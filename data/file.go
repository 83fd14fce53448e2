package data

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"io"
	"iter"
	"path"
	"path/filepath"
	"strings"

	"github.com/parquet-go/parquet-go"

	"github.com/posttrain/posttrain/data/internal/pages"
	"github.com/posttrain/posttrain/internal/files"
)

// Table is a set of records on its way to a file.
type Table struct {
	Values  iter.Seq2[any, error]     // the records as encoding/json writes them; ends after the first error
	Parquet func(out io.Writer) error // all records
}

// indexed are n records, made one at a time.
func indexed(n int, value func(i int) (any, error)) iter.Seq2[any, error] {
	return func(yield func(any, error) bool) {
		for i := range n {
			if v, err := value(i); !yield(v, err) || err != nil {
				return
			}
		}
	}
}

// CheckWritable says whether records can be written under a name, nil when they can.
func CheckWritable(name string) error {
	if ext, _ := FormOf(name); formats[ext].rows == nil {
		return fmt.Errorf("%s: extension %q: want .jsonl, .json or .parquet, each also with .gz", name,
			path.Ext(strings.ToLower(name)))
	}
	return nil
}

// FormOf is the extension of a file without .gz, in small letters, and whether it had .gz.
func FormOf(name string) (ext string, zipped bool) {
	base, zipped := strings.CutSuffix(strings.ToLower(filepath.ToSlash(name)), ".gz")
	return path.Ext(base), zipped
}

// Write writes the records in the form that the file's name asks for, whole or not at all.
func (t Table) Write(name string) error {
	if err := CheckWritable(name); err != nil {
		return err
	}
	ext, zipped := FormOf(name)
	write := map[string]func(io.Writer) error{".jsonl": t.Lines, ".json": t.array, ".parquet": t.Parquet}[ext]
	if !zipped {
		return WriteFile(name, write)
	}
	return WriteFile(name, func(w io.Writer) error {
		z := gzip.NewWriter(w)
		if err := write(z); err != nil {
			return err
		}
		return z.Close()
	})
}

// Lines writes one JSON text a line.
func (t Table) Lines(w io.Writer) error {
	return t.each(func(_ int, text []byte) error {
		_, err := w.Write(append(text, '\n'))
		return err
	})
}

// array writes a JSON array, one element a line.
func (t Table) array(w io.Writer) error {
	n := 0
	err := t.each(func(i int, text []byte) error {
		n++
		_, err := fmt.Fprintf(w, "%s\n%s", []string{"[", ","}[min(i, 1)], text)
		return err
	})
	end := "\n]\n"
	if n == 0 {
		end = "[]\n"
	}
	if err == nil {
		_, err = io.WriteString(w, end)
	}
	return err
}

// each calls write for every record as JSON.
func (t Table) each(write func(i int, text []byte) error) error {
	i := 0
	for value, err := range t.Values {
		if err != nil {
			return err
		}
		text, err := Marshal(value)
		if err != nil {
			return err
		}
		if err := write(i, text); err != nil {
			return err
		}
		i++
	}
	return nil
}

// groupRows are the rows of parquet that a writer keeps in memory.
const groupRows = 4096

// WriteParquet writes rows with a schema that their type or the options give. It ends after the first error.
func WriteParquet[T any](w io.Writer, rows iter.Seq2[T, error], options ...parquet.WriterOption) (err error) {
	defer pages.Catch(&err)
	out := parquet.NewGenericWriter[T](w, append(options, parquet.Compression(&parquet.Zstd))...)
	n := 0
	for row, err := range rows {
		if err == nil {
			_, err = out.Write([]T{row})
		}
		if n++; err == nil && n%groupRows == 0 {
			err = out.Flush()
		}
		if err != nil {
			return err
		}
	}
	return out.Close()
}

// WriteFile writes a file, whole or not at all: it gets a temporary name beside path first.
func WriteFile(path string, write func(w io.Writer) error) error {
	tmp, err := files.NewPending(path, 0o666)
	if err == nil {
		defer tmp.Cleanup()
		out := bufio.NewWriter(tmp)
		if err = write(out); err == nil {
			err = out.Flush()
		}
	}
	if err == nil {
		err = tmp.CloseAtomicallyReplace()
	}
	if err != nil {
		return fmt.Errorf("%s: not written: %w", path, files.Cause(err))
	}
	return nil
}
