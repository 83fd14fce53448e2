package data

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// maxRowBytes bounds one row of text: a larger one is a damaged file, not a training example.
const maxRowBytes = 64 << 20

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

// format is what an extension (without .gz) stands for. Readers get the name of the file for their messages; a format
// whose rows are JSON texts has raw, which yields them undecoded.
type format struct {
	rows func(name string, r io.Reader) rowSeq
	raw  func(name string, r io.Reader) rawSeq
}

var formats = map[string]format{
	".jsonl":   {rows: decoded(jsonlRows), raw: jsonlRows},
	".json":    {rows: decoded(jsonRows), raw: jsonRows},
	".parquet": {rows: parquetRows},
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
	return func(yield func(row, error) bool) {
		f, in, err := openRows(fsys, name)
		if err != nil {
			yield(row{}, err)
			return
		}
		defer in.Close()
		f.rows(name, in.content)(yield)
	}
}

// readRaw streams the JSON texts of a .json or .jsonl file.
func readRaw(fsys fs.FS, name string) rawSeq {
	return func(yield func(rawRow, error) bool) {
		f, in, err := openRows(fsys, name)
		if err != nil {
			yield(rawRow{}, err)
			return
		}
		defer in.Close()
		if f.raw == nil {
			yield(rawRow{}, fmt.Errorf("%s: want .json or .jsonl here", name))
			return
		}
		f.raw(name, in.content)(yield)
	}
}

// input is an open file and what is read from it: the file itself, or its decompressed content.
type input struct {
	fs.File
	content io.Reader
}

// openRows opens a file and finds its format by the extension.
func openRows(fsys fs.FS, name string) (format, input, error) {
	base, zipped := strings.CutSuffix(strings.ToLower(filepath.ToSlash(name)), ".gz")
	f, known := formats[path.Ext(base)]
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

// jsonlRows reads one JSON text a line; blank lines are passed over.
func jsonlRows(name string, r io.Reader) rawSeq {
	return func(yield func(rawRow, error) bool) {
		in := bufio.NewReaderSize(r, 64<<10)
		for line := 1; ; line++ {
			text, end := readLine(in)
			if end != nil && end != io.EOF {
				yield(rawRow{}, lineError(name, line, end))
				return
			}
			if line == 1 {
				text = bytes.TrimPrefix(text, []byte("\ufeff"))
			}
			if text = bytes.TrimSpace(text); len(text) > 0 && !yieldRaw(yield, fmt.Sprintf("%s:%d", name, line), text) {
				return
			}
			if end == io.EOF {
				return
			}
		}
	}
}

// yieldRaw hands on a JSON text, or the error that it is not UTF-8 (which the JSON decoder would mend in silence).
func yieldRaw(yield func(rawRow, error) bool, source string, text []byte) bool {
	if !utf8.Valid(text) {
		yield(rawRow{}, fmt.Errorf("%s: invalid UTF-8: want JSON in UTF-8", source))
		return false
	}
	return yield(rawRow{source, text}, nil)
}

var errRowTooLong = fmt.Errorf("longer than %d MiB: one JSON object a line wanted", maxRowBytes>>20)

// readLine returns the next line; io.EOF comes with the last one.
func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > maxRowBytes {
			return nil, errRowTooLong
		}
		if err != bufio.ErrBufferFull {
			return line, err
		}
	}
}

func lineError(name string, line int, err error) error {
	if err == errRowTooLong {
		return fmt.Errorf("%s:%d: %w", name, line, err)
	}
	return readError(name, fmt.Sprintf("in line %d", line), err)
}

// parseObject decodes one JSON object, numbers kept as written.
func parseObject(text []byte) (map[string]any, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var value any
	if err := dec.Decode(&value); err != nil {
		return nil, badJSON(err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("more than one JSON value on the line: want one object a line")
	}
	fields, ok := value.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%s: want a JSON object", kindOf(value))
	}
	return fields, nil
}

// badJSON words a decoder's complaint.
func badJSON(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return errors.New("bad JSON: the object is not closed")
	}
	msg := err.Error()
	if strings.HasSuffix(msg, "unexpected end of JSON input") {
		return errors.New("bad JSON: the object is not closed")
	}
	if strings.Contains(msg, "'N'") || strings.Contains(msg, "'I'") {
		msg += " (NaN and Infinity are not JSON)"
	}
	return fmt.Errorf("bad JSON: %s", strings.TrimPrefix(msg, "json: "))
}

// kindOf names a value as a user knows it.
func kindOf(value any) string {
	switch value.(type) {
	case nil:
		return "null"
	case string:
		return "a string"
	case bool:
		return "true or false"
	case []any:
		return "a list"
	case map[string]any:
		return "an object"
	}
	return "a number"
}

// jsonRows reads an array of JSON texts, or texts one after the other (many .json files are JSON lines).
func jsonRows(name string, r io.Reader) rawSeq {
	return func(yield func(rawRow, error) bool) {
		lines := &lineCounter{in: r}
		in := bufio.NewReader(lines)
		array, skipped, err := openArray(in)
		if err == io.EOF {
			return
		}
		dec := json.NewDecoder(in)
		if err == nil && array {
			_, err = dec.Token()
		}
		for n := 1; err == nil && (!array || dec.More()); n++ {
			var text json.RawMessage
			if err = dec.Decode(&text); err == nil && !yieldRaw(yield, fmt.Sprintf("%s: row %d", name, n), text) {
				return
			}
		}
		if err == io.EOF && !array {
			return
		}
		if err == nil {
			err = closeArray(dec)
		}
		if err != nil {
			yield(rawRow{}, jsonError(name, lines, skipped, dec, err))
		}
	}
}

// openArray looks past a byte order mark and white space for the "[" of an array, which it leaves to be read; io.EOF
// means an empty file.
func openArray(in *bufio.Reader) (array bool, skipped int64, err error) {
	if bom, _ := in.Peek(3); string(bom) == "\ufeff" {
		in.Discard(3)
		skipped = 3
	}
	for ; ; skipped++ {
		b, err := in.ReadByte()
		if err != nil {
			return false, skipped, err
		}
		if b != ' ' && b != '\t' && b != '\r' && b != '\n' {
			return b == '[', skipped, in.UnreadByte()
		}
	}
}

// closeArray wants the "]" and nothing behind it.
func closeArray(dec *json.Decoder) error {
	if _, err := dec.Token(); err != nil {
		return err
	}
	if _, err := dec.Token(); err != io.EOF {
		if err == nil {
			err = errors.New("text after the closing ]")
		}
		return err
	}
	return nil
}

// jsonError names the line of a fault; skipped bytes came before what the decoder saw.
func jsonError(name string, lines *lineCounter, skipped int64, dec *json.Decoder, err error) error {
	if lines.err != nil {
		return readError(name, fmt.Sprintf("in line %d", lines.count+1), lines.err)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return fmt.Errorf("%s:%d: bad JSON: the file ends inside a value", name, lines.count+1)
	}
	return fmt.Errorf("%s:%d: %w", name, lines.at(skipped+faultOffset(dec)), badJSON(err))
}

// faultOffset is where in its input the decoder met what it did not want. Its own syntax errors count only the bytes of
// whole values, so the rest of the buffer is read again.
func faultOffset(dec *json.Decoder) int64 {
	start := dec.InputOffset()
	rest, _ := io.ReadAll(dec.Buffered())
	var syntax *json.SyntaxError
	if err := json.NewDecoder(bytes.NewReader(rest)).Decode(new(json.RawMessage)); errors.As(err, &syntax) {
		return start + syntax.Offset - 1
	}
	return start + int64(len(rest)-len(bytes.TrimLeft(rest, " \t\r\n")))
}

// lineCounter knows the line of every byte offset it has passed on lately, and the error that ended the reading.
type lineCounter struct {
	in     io.Reader
	offset int64
	count  int     // newlines passed on
	recent []int64 // offsets of the latest newlines
	err    error   // anything but io.EOF
}

// recentLines is enough for what a JSON decoder holds back between asking and complaining.
const recentLines = 1 << 16

func (c *lineCounter) Read(p []byte) (int, error) {
	n, err := c.in.Read(p)
	for i, b := range p[:n] {
		if b == '\n' {
			c.count++
			c.recent = append(c.recent, c.offset+int64(i))
		}
	}
	if len(c.recent) > 2*recentLines {
		c.recent = append(c.recent[:0], c.recent[len(c.recent)-recentLines:]...)
	}
	c.offset += int64(n)
	if err != nil && err != io.EOF {
		c.err = err
	}
	return n, err
}

// at is the line, from 1, in which the byte at offset stands.
func (c *lineCounter) at(offset int64) int {
	line := c.count + 1
	for i := len(c.recent) - 1; i >= 0 && c.recent[i] >= offset; i-- {
		line--
	}
	return line
}
