package rows

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/parquet-go/parquet-go"
)

// Table is a set of records on its way to a file.
type Table struct {
	N       int
	Value   func(i int) (any, error)  // record i as encoding/json writes it
	Parquet func(out io.Writer) error // all records
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
	write := map[string]func(io.Writer) error{".jsonl": t.lines, ".json": t.array, ".parquet": t.Parquet}[ext]
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

// lines writes one JSON text a line.
func (t Table) lines(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false) // <think> stays readable
	for i := range t.N {
		value, err := t.Value(i)
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
func (t Table) array(w io.Writer) error {
	for i := range t.N {
		value, err := t.Value(i)
		if err != nil {
			return err
		}
		line, err := Marshal(value)
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
	if t.N == 0 {
		end = "[]\n"
	}
	_, err := io.WriteString(w, end)
	return err
}

// WriteParquet writes rows with a schema that their type or the options give.
func WriteParquet[T any](w io.Writer, rows []T, options ...parquet.WriterOption) (err error) {
	defer catch(&err)
	out := parquet.NewGenericWriter[T](w, append(options, parquet.Compression(&parquet.Zstd))...)
	if _, err := out.Write(rows); err != nil {
		return err
	}
	return out.Close()
}

// WriteFile writes a temporary file beside path and renames it.
func WriteFile(path string, write func(w io.Writer) error) (err error) {
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return fmt.Errorf("%s: not written: %w", path, CauseOf(err))
	}
	defer func() {
		if err != nil {
			tmp.Close()
			os.Remove(tmp.Name())
			err = fmt.Errorf("%s: not written: %w", path, CauseOf(err))
		}
	}()
	out := bufio.NewWriter(tmp)
	if err := write(out); err != nil {
		return err
	}
	if err := out.Flush(); err != nil {
		return err
	}
	return publish(tmp, path)
}

// publish makes the temporary file durable and gives it its name.
func publish(tmp *os.File, path string) error {
	if err := tmp.Chmod(0o644); err != nil {
		return err
	}
	if err := tmp.Sync(); err != nil {
		return err
	}
	if err := tmp.Close(); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}
