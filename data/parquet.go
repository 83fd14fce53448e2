package data

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/parquet-go/parquet-go"

	"github.com/posttrain/posttrain/data/internal/pages"
	"github.com/posttrain/posttrain/internal/files"
)

// parquetRows reads the rows of a parquet file, one at a time. Parquet keeps its index at the end, so a .gz is first
// unpacked into a temporary file.
func parquetRows(in source) RowSeq {
	return func(yield func(Row, error) bool) {
		at, size, release, err := readerAt(in)
		if err != nil {
			yield(Row{}, Unreadable(in.name, "", err))
			return
		}
		defer release()
		bound := bind(in.size)
		reader, err := openParquet(at, size, bound.most)
		if err != nil {
			yield(Row{}, fmt.Errorf("%s: not a readable parquet file: %w", in.name, files.Cause(err)))
			return
		}
		defer reader.Close()
		keep := newKeeper(bound)
		for n := 1; ; n++ {
			place := fmt.Sprintf("%s: row %d", in.name, n)
			fields, err := nextParquet(reader, keep)
			if err == io.EOF {
				return
			}
			if err != nil {
				yield(Row{}, fmt.Errorf("%s: %w", place, err))
				return
			}
			if !yield(Row{Source: place, Fields: fields}, nil) {
				return
			}
		}
	}
}

// readerAt makes the content readable at any offset.
func readerAt(in source) (at io.ReaderAt, size int64, release func(), err error) {
	if at, ok := in.content.(io.ReaderAt); ok {
		return at, in.size, func() {}, nil
	}
	if !in.zipped {
		all, err := io.ReadAll(in.content)
		return bytes.NewReader(all), int64(len(all)), func() {}, err
	}
	tmp, err := os.CreateTemp("", "posttrain-*.parquet")
	if err != nil {
		return nil, 0, nil, err
	}
	release = func() { tmp.Close(); os.Remove(tmp.Name()) }
	if size, err = io.Copy(tmp, in.content); err != nil {
		release()
	}
	return tmp, size, release, err
}

type parquetReader = parquet.GenericReader[any]

// openParquet opens the file with its own schema; its pages and footer take at most most bytes of memory. The library
// panics on some damaged files: Catch makes an error.
func openParquet(r io.ReaderAt, size, most int64) (in *parquetReader, err error) {
	defer pages.Catch(&err)
	file, err := pages.Open(r, size, most)
	if err != nil {
		return nil, err
	}
	return parquet.NewGenericReader[any](file, file.Schema()), nil
}

// nextParquet returns the next row, io.EOF after the last. The values of a row refer to the pages: what they take as
// fields is taken from the bound before.
func nextParquet(in *parquetReader, keep *keeper) (fields map[string]any, err error) {
	defer pages.Catch(&err)
	rows := make([]parquet.Row, 1)
	n, err := in.ReadRows(rows)
	switch {
	case n == 0 && err == io.EOF:
		return nil, err
	case n == 0:
		return nil, fmt.Errorf("damaged parquet file: %w", cmp.Or(err, io.ErrUnexpectedEOF))
	}
	if err := keep.row(rows[0]); err != nil {
		return nil, err
	}
	var row any
	if err := in.Schema().Reconstruct(&row, rows[0]); err != nil {
		return nil, fmt.Errorf("damaged parquet file: %w", err)
	}
	fields, ok := keep.value(row).(map[string]any)
	if !ok {
		return nil, fmt.Errorf("damaged parquet file: row is %T", row)
	}
	return fields, nil
}

// parquetTexts reads these columns of a parquet file as JSON texts; other columns are left alone. Null fields are left
// out, texts that are JSON objects are taken as such, and the fields of a struct or map come in the order of their
// names.
func parquetTexts(in source, columns []string) RowSeq {
	return func(yield func(Row, error) bool) {
		for row, err := range parquetRows(in) {
			var text []byte
			if err == nil {
				if text, err = jsonOf(row.Fields, columns); err != nil {
					err = fmt.Errorf("%s: %w", row.Source, err)
				}
			}
			if !yield(Row{Source: row.Source, Text: text}, err) {
				return
			}
		}
	}
}

func jsonOf(fields map[string]any, columns []string) (text []byte, err error) {
	defer pages.Catch(&err) // reflection meets whatever types the library makes up
	object := map[string]any{}
	for _, column := range columns {
		value, err := tidy(column, reflect.ValueOf(fields[column]))
		if err != nil {
			return nil, err
		}
		if s, ok := value.(string); ok && strings.HasPrefix(s, "{") && json.Valid([]byte(s)) {
			value = json.RawMessage(s)
		}
		object[column] = value
	}
	if text, err = Marshal(object); err != nil {
		return nil, fmt.Errorf("%s: want text, finite numbers, and lists and objects of them",
			strings.TrimPrefix(err.Error(), "json: "))
	}
	return text, nil
}

// tidy makes a JSON value of a value of the parquet reader, which gives pointers, bytes and structs of its own.
func tidy(at string, v reflect.Value) (any, error) {
	switch v.Kind() {
	case reflect.Invalid:
		return nil, nil
	case reflect.Pointer, reflect.Interface:
		return tidy(at, v.Elem()) // the zero Value of a nil
	case reflect.String:
		return tidyText(at, v.String())
	case reflect.Map:
		return tidyFields(at, mapFields(v))
	case reflect.Struct:
		if v.NumField() == 1 { // undoes the wrapping that a list inside a map has: {list [{Element x}, …]}
			return tidy(at, v.Field(0))
		}
		return tidyFields(at, structFields(v))
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 && v.Kind() == reflect.Slice {
			return tidyText(at, string(v.Bytes()))
		}
		return tidyList(at, v)
	}
	return v.Interface(), nil
}

func tidyText(at, s string) (any, error) {
	if !utf8.ValidString(s) {
		return nil, fmt.Errorf("%s is not valid UTF-8", at)
	}
	return s, nil
}

func tidyList(at string, v reflect.Value) (any, error) {
	list := make([]any, v.Len())
	for i := range list {
		var err error
		if list[i], err = tidy(at, v.Index(i)); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// tidyFields makes an object of the fields that are not null.
func tidyFields(at string, fields map[string]reflect.Value) (any, error) {
	object := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(fields)) { // so that the first fault is always the same
		value, err := tidy(at+"."+name, fields[name])
		if err == nil {
			_, err = tidyText(at, name)
		}
		if err != nil {
			return nil, err
		}
		if value != nil {
			object[name] = value
		}
	}
	return object, nil
}

func mapFields(v reflect.Value) map[string]reflect.Value {
	fields := map[string]reflect.Value{}
	for key, value := range v.Seq2() {
		fields[fmt.Sprint(key.Interface())] = value
	}
	return fields
}

func structFields(v reflect.Value) map[string]reflect.Value {
	fields := map[string]reflect.Value{}
	for i := range v.NumField() {
		fields[strings.Split(v.Type().Field(i).Tag.Get("parquet"), ",")[0]] = v.Field(i)
	}
	return fields
}
