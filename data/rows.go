package data

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// row is one record of a file: column → string, json.Number or Go number, bool, []any, map[string]any or nil.
type row struct {
	source string // "pairs.jsonl:41" for a line, "pairs.parquet: row 41" otherwise
	fields map[string]any
}

// rowSeq streams the rows of a file; it ends after the first error, which names the file and the line or row.
type rowSeq = iter.Seq2[row, error]

// rawRow is the JSON text of one record, in valid UTF-8.
type rawRow struct {
	source string
	text   []byte
}

type rawSeq = iter.Seq2[rawRow, error]

// format is what an extension (without .gz) stands for. Readers get the name of the file for their messages; raw yields
// the rows as JSON texts, in which the order of an object's keys is kept.
type format struct {
	rows func(name string, r io.Reader) rowSeq
	raw  func(name string, r io.Reader) rawSeq
}

var formats = map[string]format{
	".jsonl":   {rows: decoded(jsonlRows), raw: jsonlRows},
	".json":    {rows: decoded(jsonRows), raw: jsonRows},
	".parquet": {rows: parquetRows, raw: parquetTexts},
}

// decoded turns a reader of JSON texts into one of rows.
func decoded(raw func(string, io.Reader) rawSeq) func(string, io.Reader) rowSeq {
	return func(name string, r io.Reader) rowSeq {
		return func(yield func(row, error) bool) {
			for line, err := range raw(name, r) {
				var fields map[string]any
				if err == nil {
					if fields, err = parseObject(line.text); err != nil {
						err = fmt.Errorf("%s: %w", line.source, err)
					}
				}
				if !yield(row{line.source, fields}, err) || err != nil {
					return
				}
			}
		}
	}
}

// readRows streams the rows of a file of the operating system (fsys nil) or of fsys.
func readRows(fsys fs.FS, name string) rowSeq {
	return stream(fsys, name, func(f format, r io.Reader) rowSeq { return f.rows(name, r) })
}

// readRaw streams the rows of a file as JSON texts.
func readRaw(fsys fs.FS, name string) rawSeq {
	return stream(fsys, name, func(f format, r io.Reader) rawSeq { return f.raw(name, r) })
}

func stream[R any](fsys fs.FS, name string, read func(format, io.Reader) iter.Seq2[R, error]) iter.Seq2[R, error] {
	return func(yield func(R, error) bool) {
		f, in, err := openRows(fsys, name)
		if err != nil {
			yield(*new(R), err)
			return
		}
		defer in.Close()
		read(f, in.content)(yield)
	}
}

// input is an open file and what is read from it: the file itself, or its decompressed content.
type input struct {
	fs.File
	content io.Reader
}

// openRows opens a file and finds its format by the extension.
func openRows(fsys fs.FS, name string) (format, input, error) {
	ext, zipped := formOf(name)
	f, known := formats[ext]
	if !known {
		return f, input{}, fmt.Errorf("%s: extension %q: want .jsonl, .json or .parquet, each also with .gz", name, path.Ext(strings.ToLower(name)))
	}
	file, err := openFile(fsys, name)
	if err != nil {
		return f, input{}, err
	}
	if !zipped {
		return f, input{file, file}, nil
	}
	z, err := gzip.NewReader(bufio.NewReader(file))
	if err != nil {
		file.Close()
		return f, input{}, readError(name, "", err)
	}
	return f, input{file, z}, nil
}

func openFile(fsys fs.FS, name string) (fs.File, error) {
	open := func() (fs.File, error) { return os.Open(name) }
	if fsys != nil {
		open = func() (fs.File, error) { return fsys.Open(path.Clean(filepath.ToSlash(name))) }
	}
	file, err := open()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, causeOf(err))
	}
	info, err := file.Stat()
	if err == nil && info.IsDir() {
		file.Close()
		return nil, fmt.Errorf("%s: is a folder: want a .jsonl, .json or .parquet file", name)
	}
	return file, nil
}

// causeOf drops the operation and paths that a file system's error repeats.
func causeOf(err error) error {
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

// readError puts a fault of reading or decompressing into words; place says how far reading came, e.g. "after line 812".
func readError(name, place string, err error) error {
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
	return fmt.Errorf("%s: cannot be read%s: %w", name, place, causeOf(err))
}
