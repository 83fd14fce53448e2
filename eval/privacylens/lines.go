package privacylens

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"unicode/utf8"
)

// maxLine bounds a line of a file: a longer one is damage.
const maxLine = 64 << 20

// eachLine hands on the lines of a reader that are not blank, with their numbers from 1 and the offset behind each; a
// last line that has no end is whole false.
func eachLine(path string, r io.Reader, visit func(line int, text []byte, end int64, whole bool) error) error {
	in, end := bufio.NewReaderSize(r, 64<<10), int64(0)
	for line := 1; ; line++ {
		var text []byte
		var err error
		for err = bufio.ErrBufferFull; err == bufio.ErrBufferFull; {
			var part []byte
			part, err = in.ReadSlice('\n')
			if text = append(text, part...); len(text) > maxLine {
				return fmt.Errorf("%s:%d: longer than %d MiB: want one JSON object a line", path, line, maxLine>>20)
			}
		}
		if err != nil && err != io.EOF {
			return fmt.Errorf("%s: cannot be read in line %d: %w", path, line, cause(err))
		}
		end += int64(len(text))
		if row := bytes.TrimSpace(text); len(row) > 0 {
			if fault := visit(line, row, end, err == nil); fault != nil {
				return fault
			}
		}
		if err == io.EOF {
			return nil
		}
	}
}

// parseLine decodes one JSON object, whose lines a message names.
func parseLine(path string, line int, text []byte, value any) error {
	if !utf8.Valid(text) {
		return fmt.Errorf("%s:%d: invalid UTF-8: want JSON in UTF-8", path, line)
	}
	err := json.Unmarshal(text, value)
	var kind *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &kind) && kind.Field != "":
		return fmt.Errorf("%s:%d: %s is of JSON type %s: want %s", path, line, kind.Field, kind.Value, kind.Type.Kind())
	case errors.As(err, &kind):
		return fmt.Errorf("%s:%d: JSON type %s: want an object", path, line, kind.Value)
	}
	return fmt.Errorf("%s:%d: bad JSON: %v", path, line, err)
}

// readLines decodes a file of JSON lines.
func readLines[T any](path string, row func(line int, value T) error) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("%s: %w", path, cause(err))
	}
	defer file.Close()
	return eachLine(path, file, func(line int, text []byte, _ int64, _ bool) error {
		var value T
		if line == 1 {
			text = bytes.TrimPrefix(text, []byte("\ufeff"))
		}
		if err := parseLine(path, line, text, &value); err != nil {
			return err
		}
		return row(line, value)
	})
}

// cause drops the operation and path that a file system's error repeats.
func cause(err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return pathErr.Err
	}
	return err
}
