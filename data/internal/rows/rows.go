// Package rows reads and writes the files of records: .jsonl, .json and .parquet, each also with .gz. A bad row is an
// error that names file and line.
package rows

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Row is one record of a file.
type Row struct {
	Source string         // "pairs.jsonl:41" for a line, "pairs.parquet: row 41" otherwise
	Fields map[string]any // of Read: column → string, json.Number or Go number, bool, []any, map[string]any or nil
	Text   []byte         // of ReadJSON: the record as JSON in valid UTF-8
}

// Has says whether the row has a value, not null, in the column.
func (r Row) Has(column string) bool { return r.Fields[column] != nil }

// Columns lists the columns of a row, the null ones marked.
func (r Row) Columns() []string {
	names := slices.Sorted(maps.Keys(r.Fields))
	for i, name := range names {
		if r.Fields[name] == nil {
			names[i] += " (null)"
		}
	}
	return names
}

// Seq streams the rows of a file; it ends after the first error, which names the file and the line or row.
type Seq = iter.Seq2[Row, error]

// format has the readers of an extension (without .gz). They get the name of the file for their messages; raw yields
// the rows as JSON texts, in which the order of an object's keys is kept.
type format struct {
	rows func(name string, r io.Reader) Seq
	raw  func(name string, r io.Reader, columns []string) Seq
}

var formats = map[string]format{
	".jsonl":   {rows: decode(jsonlRows), raw: jsonlRows},
	".json":    {rows: decode(jsonRows), raw: jsonRows},
	".parquet": {rows: parquetRows, raw: parquetTexts},
}

// decode makes a reader of rows from a reader of JSON texts.
func decode(raw func(string, io.Reader, []string) Seq) func(string, io.Reader) Seq {
	return func(name string, r io.Reader) Seq {
		return func(yield func(Row, error) bool) {
			for line, err := range raw(name, r, nil) {
				var fields map[string]any
				if err == nil {
					if fields, err = parseObject(line.Text); err != nil {
						err = fmt.Errorf("%s: %w", line.Source, err)
					}
				}
				if !yield(Row{Source: line.Source, Fields: fields}, err) || err != nil {
					return
				}
			}
		}
	}
}

// Read streams the rows of a file of the operating system (fsys nil) or of fsys.
func Read(fsys fs.FS, name string) Seq {
	return stream(fsys, name, func(f format, r io.Reader) Seq { return f.rows(name, r) })
}

// ReadJSON streams the rows of a file as JSON texts; of a parquet file only these columns, null ones as null.
func ReadJSON(fsys fs.FS, name string, columns ...string) Seq {
	return stream(fsys, name, func(f format, r io.Reader) Seq { return f.raw(name, r, columns) })
}

func stream(fsys fs.FS, name string, read func(format, io.Reader) Seq) Seq {
	return func(yield func(Row, error) bool) {
		f, in, err := openRows(fsys, name)
		if err != nil {
			yield(Row{}, err)
			return
		}
		defer in.Close()
		read(f, in.content)(yield)
	}
}

// input is an open file with its content, decompressed if need be.
type input struct {
	fs.File
	content io.Reader
}

// openRows opens a file and finds its format by the extension.
func openRows(fsys fs.FS, name string) (format, input, error) {
	ext, zipped := FormOf(name)
	f, known := formats[ext]
	if !known {
		return f, input{}, fmt.Errorf("%s: extension %q: want .jsonl, .json or .parquet, each also with .gz", name,
			path.Ext(strings.ToLower(name)))
	}
	file, err := Open(fsys, name)
	if err != nil {
		return f, input{}, err
	}
	if !zipped {
		return f, input{file, file}, nil
	}
	z, err := gzip.NewReader(bufio.NewReader(file))
	if err != nil {
		file.Close()
		return f, input{}, Fault(name, "", err)
	}
	return f, input{file, z}, nil
}

// Open opens a file of the operating system (fsys nil) or of fsys; a folder is an error.
func Open(fsys fs.FS, name string) (fs.File, error) {
	open := func() (fs.File, error) { return os.Open(name) }
	if fsys != nil {
		open = func() (fs.File, error) { return fsys.Open(path.Clean(filepath.ToSlash(name))) }
	}
	file, err := open()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, CauseOf(err))
	}
	info, err := file.Stat()
	if err == nil && info.IsDir() {
		file.Close()
		return nil, fmt.Errorf("%s: is a folder: want a .jsonl, .json or .parquet file", name)
	}
	return file, nil
}

// CauseOf removes the operation and the paths from a file system's error: the message has them already.
func CauseOf(err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return pathErr.Err
	}
	var linkErr *os.LinkError
	if errors.As(err, &linkErr) {
		return linkErr.Err
	}
	return err
}

// Fault words an error of reading or decompressing; place is where it happened, such as "in line 812", or "".
func Fault(name, place string, err error) error {
	if place != "" {
		place = " " + place
	}
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return fmt.Errorf("%s: the file ends early%s: it is truncated", name, place)
	case errors.Is(err, gzip.ErrHeader):
		return fmt.Errorf("%s: not a gzip file, though its name ends in .gz", name)
	case errors.Is(err, gzip.ErrChecksum):
		return fmt.Errorf("%s: the gzip checksum is wrong%s: the file is damaged", name, place)
	}
	return fmt.Errorf("%s: cannot be read%s: %w", name, place, CauseOf(err))
}

// The most names of a list in a message, and the longest name there.
const (
	mostNames   = 12
	longestName = 40
)

// Beginning is the first n characters of a text, with … in place of the rest.
func Beginning(text string, n int) string {
	if runes := []rune(text); len(runes) > n {
		return string(runes[:n]) + "…"
	}
	return text
}

// List joins names for a message, long lists and long names cut.
func List(names []string) string {
	if len(names) == 0 {
		return "nothing"
	}
	var shown []string
	for _, name := range names[:min(len(names), mostNames)] {
		shown = append(shown, Beginning(name, longestName))
	}
	more := ""
	if n := len(names) - len(shown); n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return strings.Join(shown, ", ") + more
}
