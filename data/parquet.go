package data

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/parquet-go/parquet-go"
)

// parquetRows reads the rows of a parquet file, one at a time. What is not a seekable file (a .gz) is first unpacked
// into a temporary file, because parquet keeps its index at the end.
func parquetRows(name string, r io.Reader) rowSeq {
	return func(yield func(row, error) bool) {
		at, size, release, err := readerAt(r)
		if err != nil {
			yield(row{}, readError(name, "", err))
			return
		}
		defer release()
		in, err := openParquet(at, size)
		if err != nil {
			yield(row{}, fmt.Errorf("%s: not a readable parquet file: %w", name, err))
			return
		}
		defer in.Close()
		for n := 1; ; n++ {
			fields, err := nextParquet(in)
			if err == io.EOF {
				return
			}
			source := fmt.Sprintf("%s: row %d", name, n)
			if err != nil {
				yield(row{}, fmt.Errorf("%s: damaged parquet file: %w", source, err))
				return
			}
			if !yield(row{source, fields}, nil) {
				return
			}
		}
	}
}

// readerAt makes r readable at any offset.
func readerAt(r io.Reader) (at io.ReaderAt, size int64, release func(), err error) {
	if file, ok := r.(fs.File); ok {
		info, err := file.Stat()
		if err != nil {
			return nil, 0, nil, err
		}
		if at, ok := r.(io.ReaderAt); ok {
			return at, info.Size(), func() {}, nil
		}
		all, err := io.ReadAll(r)
		return bytes.NewReader(all), int64(len(all)), func() {}, err
	}
	tmp, err := os.CreateTemp("", "posttrain-*.parquet")
	if err != nil {
		return nil, 0, nil, err
	}
	release = func() { tmp.Close(); os.Remove(tmp.Name()) }
	if size, err = io.Copy(tmp, r); err != nil {
		release()
	}
	return tmp, size, release, err
}

type parquetReader = parquet.GenericReader[any]

// openParquet opens the file with its own schema. The library panics on some damaged files; that becomes an error.
func openParquet(r io.ReaderAt, size int64) (in *parquetReader, err error) {
	defer recovered(&err)
	file, err := parquet.OpenFile(r, size, parquet.SkipBloomFilters(true), parquet.SkipPageIndex(true))
	if err != nil {
		return nil, err
	}
	return parquet.NewGenericReader[any](file, file.Schema()), nil
}

// nextParquet returns the next row, io.EOF after the last.
func nextParquet(in *parquetReader) (fields map[string]any, err error) {
	defer recovered(&err)
	rows := make([]any, 1)
	n, err := in.Read(rows)
	if n == 0 {
		if err == nil {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	fields, ok := rows[0].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("row is %T", rows[0])
	}
	return fields, nil
}

// recovered turns a panic into an error.
func recovered(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("%v", r)
	}
}
