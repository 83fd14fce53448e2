package data

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"unicode/utf8"

	"github.com/posttrain/posttrain/internal/files"
)

// WriteLines writes n values as JSON lines, whole or not at all.
func WriteLines(path string, n int, line func(i int) any) error {
	return WriteFile(path, func(w io.Writer) error {
		for i := range n {
			if err := WriteLine(w, line(i)); err != nil {
				return err
			}
		}
		return nil
	})
}

// WriteLine writes a value as a line of JSON, without escapes for < and >.
func WriteLine(w io.Writer, value any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(value)
}

// WriteJSON writes a value as indented JSON, whole or not at all.
func WriteJSON(path string, value any) error {
	return WriteFile(path, func(w io.Writer) error { return PrintJSON(w, value) })
}

// PrintJSON writes a value for programs, and for people who look.
func PrintJSON(w io.Writer, value any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(value)
}

// WriteFile writes a file, whole or not at all: it gets a temporary name beside path first.
func WriteFile(path string, write func(w io.Writer) error) error {
	err := files.Write(path, 0o666, func(w io.Writer) error {
		out := bufio.NewWriter(w)
		if err := write(out); err != nil {
			return err
		}
		return out.Flush()
	})
	if err != nil {
		return fmt.Errorf("%s: not written: %w", path, files.Cause(err))
	}
	return nil
}

// MaxLine bounds a line of JSON in bytes: a longer one is damage.
const MaxLine = MaxRowBytes

// ReadLines decodes a file of JSON lines and hands on every value with the number of its line, from 1.
func ReadLines[T any](path string, visit func(line int, value T) error) error {
	return ReadLinesFS(nil, path, visit)
}

// ReadLinesFS is ReadLines of a file in a file system; nil is the operating system's.
func ReadLinesFS[T any](fsys fs.FS, path string, visit func(line int, value T) error) error {
	file, err := Open(fsys, path)
	if err != nil {
		return err
	}
	defer file.Close()
	for line, err := range eachLine(path, file) {
		if err != nil {
			return err
		}
		value, err := decodeLine[T](path, line)
		if err != nil {
			return err
		}
		if err := visit(line.Number, value); err != nil {
			return err
		}
	}
	return nil
}

// ReadJournal decodes JSON lines that a process may have left in the middle of one: a last line without a line end is
// left out. end is the offset behind the last whole line.
func ReadJournal[T any](path string, r io.Reader) (values []T, end int64, err error) {
	for line, err := range eachLine(path, r) {
		if err != nil {
			return nil, 0, err
		}
		if !line.Whole { // even one that could be decoded: the next line would be appended to it
			continue
		}
		value, err := decodeLine[T](path, line)
		if err != nil {
			return nil, 0, err
		}
		values, end = append(values, value), line.End
	}
	return values, end, nil
}

func decodeLine[T any](path string, line Line) (value T, err error) {
	err = errors.New("invalid UTF-8: want JSON in UTF-8")
	if utf8.Valid(line.Text) {
		err = Unmarshal(line.Text, &value)
	}
	if err != nil {
		err = fmt.Errorf("%s:%d: %w", path, line.Number, err)
	}
	return value, err
}
