package data

import (
	"bytes"
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

	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/internal/files"
	"github.com/posttrain/posttrain/internal/hubcache"
)

// Row is one record of a file.
type Row struct {
	Source string         // "pairs.jsonl:41" for a line, "pairs.parquet: row 41" otherwise
	Fields map[string]any // of Rows: column → string, json.Number or Go number, bool, []any, map[string]any or nil
	Text   []byte         // of JSONRows: the record as JSON in valid UTF-8
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

// RowSeq streams the rows of a file. Each error names the file and the line or row. One that comes with the Source of a row
// is of that row alone, and the next row may follow. Any other is the last.
type RowSeq = iter.Seq2[Row, error]

// source is an open file with its content, unpacked if need be.
type source struct {
	fs.File
	name    string // for messages
	content io.Reader
	size    int64 // of the file in bytes
	zipped  bool
	bound   *bound // of the content if zipped, otherwise nil
}

// format has the readers of an extension (without .gz). raw yields the rows as JSON texts, in which the order of an
// object's keys is kept.
type format struct {
	rows func(in source) RowSeq
	raw  func(in source, columns []string) RowSeq
}

// accepted are the formats in words.
const accepted = ".jsonl, .json, .parquet, .csv or .tsv, each also with .gz"

var formats = map[string]format{
	".jsonl":   {rows: decodeRows(jsonlRows), raw: jsonlRows},
	".json":    {rows: decodeRows(finiteRows), raw: splitJSON},
	".parquet": {rows: parquetRows, raw: parquetTexts},
	".csv":     {rows: decodeRows(cellRows(',')), raw: cellRows(',')},
	".tsv":     {rows: decodeRows(cellRows('\t')), raw: cellRows('\t')},
}

// finiteRows are splitJSON of a file that may have Python's NaN.
func finiteRows(in source, columns []string) RowSeq {
	in.content = asNumbers(in.content)
	return splitJSON(in, columns)
}

// decodeRows makes a reader of rows from a reader of JSON texts.
func decodeRows(raw func(source, []string) RowSeq) func(source) RowSeq {
	return func(in source) RowSeq {
		return func(yield func(Row, error) bool) {
			for row, err := range raw(in, nil) {
				if err == nil {
					if row.Fields, err = parseObject(row.Text); err != nil {
						row.Text, _ = io.ReadAll(asNumbers(bytes.NewReader(row.Text)))
						row.Fields, err = parseObject(row.Text)
					}
					if err != nil {
						err = fmt.Errorf("%s: %w", row.Source, err)
					}
				}
				if !yield(row, err) {
					return
				}
			}
		}
	}
}

// Rows streams the rows of a file of the operating system (fsys nil) or of fsys. A pattern such as train-*.parquet
// means all files that it matches, one after the other in the order of their names; org/name@COMMIT:config:split the
// files of a data set in the hub's cache. Columns have the names that are read; each of columns is such as
// prompt=question, or chosen_score=chosen.rating for a field of an object. A file that has the name that is read, and
// not the other, stays as it is.
func Rows(fsys fs.FS, name string, columns ...string) RowSeq {
	rows := streamRows(fsys, name, func(f format, in source) RowSeq { return f.rows(in) })
	return func(yield func(Row, error) bool) {
		first := true
		for row, err := range rows {
			if err == nil {
				if err = row.rename(columns, first); err == nil {
					err = keepWhole(row.Fields, row.Text, columns)
				}
				if err != nil {
					err = fmt.Errorf("%s: %w", row.Source, err)
				}
				first = false
			}
			row.Text = nil
			if !yield(row, err) {
				return
			}
		}
	}
}

// JSONRows streams the rows of a file as JSON texts; of a parquet file only these columns, null ones as null.
func JSONRows(fsys fs.FS, name string, columns ...string) RowSeq {
	return streamRows(fsys, name, func(f format, in source) RowSeq { return f.raw(in, columns) })
}

func streamRows(fsys fs.FS, name string, read func(format, source) RowSeq) RowSeq {
	if fsys != nil {
		return streamFile(fsys, name, read)
	}
	if _, _, err := hubcache.Files(name); err != nil {
		return noRows(err)
	}
	names := files.Match(name)
	if len(names) == 1 {
		return streamFile(fsys, names[0], read)
	}
	return func(yield func(Row, error) bool) {
		for _, name := range names {
			for row, err := range streamFile(fsys, name, read) {
				if !yield(row, err) || err != nil && row.Source == "" {
					return
				}
			}
		}
	}
}

// noRows is a file that cannot be read.
func noRows(err error) RowSeq {
	return func(yield func(Row, error) bool) { yield(Row{}, err) }
}

func streamFile(fsys fs.FS, name string, read func(format, source) RowSeq) RowSeq {
	return func(yield func(Row, error) bool) {
		f, in, err := openRows(fsys, name)
		if err != nil {
			yield(Row{}, err)
			return
		}
		defer in.Close()
		read(f, in)(yield)
	}
}

// columnsError is about a row of another kind. It names the command that reads that kind.
func columnsError(row Row, want string) error {
	reader := ""
	switch {
	case row.Has("chosen") || row.Has("rejected"):
		reader = ", which mappo and reward-model read (pairs)"
	case HasLabel(row.Fields):
		reader = ", which mappo --loss kto reads (answers with labels)"
	case row.Has("messages") || row.Has("completion") || row.Has("text"):
		reader = ", which sft reads (demonstrations)"
	case row.Has("prompt"):
		reader = ", which grpo and mappo --mode online read (prompts)"
	}
	return fmt.Errorf("found columns %s%s: %s", List(row.Columns()), reader, want)
}

// openRows opens a file and finds its format by the extension.
func openRows(fsys fs.FS, name string) (format, source, error) {
	ext, zipped := FormOf(name)
	f, known := formats[ext]
	if info, err := os.Stat(name); !known && fsys == nil && err == nil && info.IsDir() {
		return f, source{}, fmt.Errorf("%s: it is a folder: want a file %s", name, accepted)
	}
	if !known {
		return f, source{}, fmt.Errorf("%s: extension %q: want %s", name, path.Ext(strings.ToLower(name)), accepted)
	}
	file, err := Open(fsys, name)
	if err != nil {
		return f, source{}, err
	}
	name = hubcache.Short(name)
	in := source{File: file, name: name, content: file, zipped: zipped}
	if info, err := file.Stat(); err == nil {
		in.size = info.Size()
	}
	if zipped {
		in.bound = bind(in.size)
		if in.content, err = unzip(file, in.bound); err != nil {
			file.Close()
			return f, source{}, Unreadable(name, "", err)
		}
	}
	return f, in, nil
}

// Open opens a file of the operating system (fsys nil) or of fsys; a folder is an error.
func Open(fsys fs.FS, name string) (fs.File, error) {
	open := func() (fs.File, error) { return os.Open(name) }
	if fsys != nil {
		open = func() (fs.File, error) { return fsys.Open(path.Clean(filepath.ToSlash(name))) }
	}
	file, err := open()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, files.Cause(err))
	}
	info, err := file.Stat()
	if err == nil && info.IsDir() {
		file.Close()
		return nil, fmt.Errorf("%s: is a folder: want a file %s", name, accepted)
	}
	return file, nil
}

// Unreadable words an error of reading or decompressing; place is where it happened, such as "in line 812", or "".
func Unreadable(name, place string, err error) error {
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
	return fmt.Errorf("%s: cannot be read%s: %w", name, place, files.Cause(err))
}

// The most names of a list in a message, and the longest name there.
const (
	mostNames   = 12
	longestName = 40
)

// List joins names for a message, long lists and long names cut.
func List(names []string) string {
	if len(names) == 0 {
		return "nothing"
	}
	var shown []string
	for _, name := range names[:min(len(names), mostNames)] {
		shown = append(shown, fault.Line(fault.Beginning(name, longestName)))
	}
	more := ""
	if n := len(names) - len(shown); n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return strings.Join(shown, ", ") + more
}
