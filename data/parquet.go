package data

import (
	"bytes"
	"encoding/binary"
	"errors"
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
	if err := checkFooter(r, size); err != nil {
		return nil, err
	}
	file, err := parquet.OpenFile(r, size, parquet.SkipBloomFilters(true), parquet.SkipPageIndex(true))
	if err != nil {
		return nil, err
	}
	return parquet.NewGenericReader[any](file, file.Schema()), nil
}

// checkFooter refuses a file whose end cannot be right: the library allocates what the last bytes ask for, up to 4 GiB.
func checkFooter(r io.ReaderAt, size int64) error {
	var end [8]byte // length of the footer, magic
	if size < 12 {
		return fmt.Errorf("%d bytes", size)
	}
	if _, err := r.ReadAt(end[:], size-8); err != nil {
		return causeOf(err)
	}
	if string(end[4:]) != "PAR1" {
		return errors.New("no PAR1 at its end: it is truncated, or something else")
	}
	if footer := int64(binary.LittleEndian.Uint32(end[:])); footer > size-12 {
		return fmt.Errorf("its footer claims %d of %d bytes", footer, size)
	}
	return nil
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
