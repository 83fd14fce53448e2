package data

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"unicode/utf8"
)

// Line is a line of a file that is not blank.
type Line struct {
	Number int    // from 1
	Text   []byte // without the white space around it
	End    int64  // offset behind the line
	Whole  bool   // false for a last line without a line end
}

// eachLine yields the lines of a reader that are not blank; it ends after the first error. A byte order mark is skipped.
func eachLine(name string, r io.Reader) iter.Seq2[Line, error] { return lines(name, r, MaxRowBytes) }

// lines yields lines of at most most bytes.
func lines(name string, r io.Reader, most int) iter.Seq2[Line, error] {
	return func(yield func(Line, error) bool) {
		in, end := bufio.NewReaderSize(r, 64<<10), int64(0)
		for n := 1; ; n++ {
			text, err := readLine(in, most)
			switch {
			case err == errRowTooLong:
				yield(Line{}, fmt.Errorf("%s:%d: longer than %d MiB: want one JSON object a line", name, n, most>>20))
				return
			case err != nil && err != io.EOF:
				yield(Line{}, Unreadable(name, fmt.Sprintf("in line %d", n), err))
				return
			}
			end += int64(len(text))
			if n == 1 {
				text = bytes.TrimPrefix(text, []byte("\ufeff"))
			}
			text = bytes.TrimSpace(text)
			if len(text) > 0 && !yield(Line{n, text, end, err == nil}, nil) || err == io.EOF {
				return
			}
		}
	}
}

var errRowTooLong = errors.New("the line is too long")

// readLine returns the next line; io.EOF comes with the last one.
func readLine(in *bufio.Reader, most int) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > most {
			return nil, errRowTooLong
		}
		if err != bufio.ErrBufferFull {
			return line, err
		}
	}
}

// jsonlRows reads one JSON text a line.
func jsonlRows(in source, _ []string) RowSeq {
	return func(yield func(Row, error) bool) {
		for line, err := range lines(in.name, in.content, in.bound.longest()) {
			if err != nil {
				yield(Row{}, err)
				return
			}
			if !in.yieldRaw(yield, fmt.Sprintf("%s:%d", in.name, line.Number), line.Text) {
				return
			}
		}
	}
}

// yieldRaw yields a JSON text, or an error if it is not UTF-8 (which the JSON decoder would replace in silence) or has
// more values than a row may have.
func (in source) yieldRaw(yield func(Row, error) bool, place string, text []byte) bool {
	if err := in.bound.take(rowBytes); err != nil {
		yield(Row{}, fmt.Errorf("%s: %w", place, err))
		return false
	}
	err := CheckValues(text)
	if !utf8.Valid(text) {
		err = errors.New("invalid UTF-8: want JSON in UTF-8")
	}
	if err != nil {
		return yield(Row{Source: place}, fmt.Errorf("%s: %w", place, err))
	}
	return yield(Row{Source: place, Text: text}, nil)
}

// CheckValues bounds the values of a JSON text: decoded, a value takes about 50 bytes, and written only two.
func CheckValues(text []byte) error {
	if len(text)/2 <= MaxRowValues {
		return nil
	}
	n, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && quoted:
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && (c == ',' || c == '[' || c == '{'):
			n++
		}
	}
	if n > MaxRowValues {
		return fmt.Errorf("more than %d JSON values: want fewer in a row", MaxRowValues)
	}
	return nil
}

// parseObject decodes one JSON object, numbers kept as written.
func parseObject(text []byte) (map[string]any, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var value any
	if err := dec.Decode(&value); err != nil {
		return nil, BadJSON(err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("more than one JSON value on the line: want one object a line")
	}
	fields, ok := value.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%s: want a JSON object", KindOf(value))
	}
	return fields, nil
}

// BadJSON words an error of the JSON decoder.
func BadJSON(err error) error {
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

// KindOf names the kind of a value for a message.
func KindOf(value any) string {
	switch value.(type) {
	case nil:
		return "null"
	case string:
		return "a string"
	case bool:
		return "true or false"
	case []any:
		return "a list"
	case map[string]any, Object:
		return "an object"
	}
	return "a number"
}

// splitJSON reads an array of JSON texts, or texts one after the other (many .json files are JSON lines).
func splitJSON(in source, _ []string) RowSeq {
	return func(yield func(Row, error) bool) {
		most := in.bound.longest()
		limited := &limitedReader{in: in.content, most: most, room: most}
		ahead := bufio.NewReader(limited)
		array, err := openArray(ahead)
		if err == io.EOF {
			return
		}
		dec := json.NewDecoder(ahead)
		if err == nil && array {
			_, err = dec.Token()
		}
		n := 1
		for ; err == nil && (!array || dec.More()); n++ {
			var text json.RawMessage
			limited.room = most
			if err = dec.Decode(&text); err == nil && len(text) > most {
				err = errTooLong(most)
				limited.err = err
			}
			if err == io.EOF && !array {
				return
			}
			if err != nil {
				break
			}
			if !in.yieldRaw(yield, fmt.Sprintf("%s: row %d", in.name, n), text) {
				return
			}
			limited.room = most
		}
		if err == nil {
			err = closeArray(dec)
		}
		switch {
		case limited.err != nil:
			yield(Row{}, Unreadable(in.name, fmt.Sprintf("in row %d", n), limited.err))
		case errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF):
			yield(Row{}, fmt.Errorf("%s: row %d: bad JSON: the file ends inside a value", in.name, n))
		case err != nil:
			yield(Row{}, fmt.Errorf("%s: row %d: %w", in.name, n, BadJSON(err)))
		}
	}
}

func errTooLong(most int) error {
	return fmt.Errorf("a JSON value is longer than %d MiB: want shorter rows", most>>20)
}

// openArray skips a byte order mark and white space and says whether an array begins there; io.EOF means an empty file.
func openArray(in *bufio.Reader) (array bool, err error) {
	if bom, _ := in.Peek(3); string(bom) == "\ufeff" {
		in.Discard(3)
	}
	for {
		b, err := in.ReadByte()
		if err != nil {
			return false, err
		}
		if b != ' ' && b != '\t' && b != '\r' && b != '\n' {
			return b == '[', in.UnreadByte()
		}
	}
}

// closeArray reads the "]"; text after it is an error.
func closeArray(dec *json.Decoder) error {
	if _, err := dec.Token(); err != nil {
		return err
	}
	if _, err := dec.Token(); err == nil {
		return errors.New("text after the closing ]")
	} else if err != io.EOF {
		return err
	}
	return nil
}

// limitedReader bounds a value, and keeps the error that ended the reading.
type limitedReader struct {
	in   io.Reader
	most int // bytes of a value
	room int // bytes until a value is too long
	err  error
}

func (l *limitedReader) Read(p []byte) (int, error) {
	n, err := l.in.Read(p)
	if l.room -= n; l.room < 0 && err == nil {
		err = errTooLong(l.most)
	}
	if err != nil && err != io.EOF {
		l.err = err
	}
	return n, err
}

// Unmarshal decodes a row's text into a record; an error names the field that has another type.
func Unmarshal(text []byte, record any) error {
	err := json.Unmarshal(text, record)
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &kind) && kind.Field != "":
		return fmt.Errorf("%s is of JSON type %s: want %s", kind.Field, kind.Value, kind.Type.Kind())
	case errors.As(err, &kind):
		return fmt.Errorf("JSON type %s: want an object", kind.Value)
	case errors.As(err, new(*json.SyntaxError)):
		return BadJSON(err)
	}
	return err
}
