package link

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"

	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/internal/run"
)

// What a line of the journal says, its key "line".
const (
	lineRun      = "run" // the first line
	Join         = "join"
	Update       = "update"
	DeadlineLine = "deadline"
	Leave        = "leave"
	lineResult   = "result" // what the event before has led to
)

// Event is what happened to the server. Events are numbered in their order, from 1.
type Event struct {
	Line    string        `json:"line"` // Join, Update, DeadlineLine or Leave
	N       int           `json:"n"`
	Agent   int           `json:"agent"`
	Kind    protocol.Kind `json:"kind,omitempty"`    // of an update
	Version int           `json:"version,omitempty"` // of an update
	File    string        `json:"file,omitempty"`    // SHA-256 of an update's file, which has it as its name
}

// first is the first line: what all messages of the run have in common.
type first struct {
	Line     string `json:"line"`
	Run      string `json:"run"`
	Protocol int    `json:"protocol"`
	Type     Type   `json:"type"`
	D        int    `json:"d"`
}

// result is the receipt of the event with that number, in short.
type result struct {
	Line     string `json:"line"`
	N        int    `json:"n"`
	Accepted bool   `json:"accepted,omitempty"`
	Reason   string `json:"reason,omitempty"`
	Stepped  bool   `json:"stepped,omitempty"`
	Version  int    `json:"version"` // of θ after the event
}

const (
	sumKey   = `,"crc32":"`
	sumEnd   = "\"}\n"
	sumBytes = len(sumKey) + 8 + len(sumEnd)
	maxLine  = 4096
)

// encodeLine writes a line with its checksum.
func encodeLine(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // texts, whole numbers and booleans have a form in JSON
	}
	b = b[:len(b)-1]
	return fmt.Appendf(b, "%s%08x%s", sumKey, checksum(b), sumEnd)
}

func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

var errLine = errors.New("the line is damaged: its checksum is not that of its content")

// decodeLine checks a line and says which kind it is.
func decodeLine(b []byte) (kind string, content []byte, err error) {
	n := len(b) - sumBytes
	if n < 1 || string(b[n:]) != fmt.Sprintf("%s%08x%s", sumKey, checksum(b[:n]), sumEnd) {
		return "", nil, errLine
	}
	var l struct{ Line string }
	content = append(bytes.Clone(b[:n]), '}')
	if err := json.Unmarshal(content, &l); err != nil {
		return "", nil, fmt.Errorf("not a line of a journal: %w", err)
	}
	return l.Line, content, nil
}

// reader reads a journal and checks that nothing is missing.
type reader struct {
	path   string
	form   *Form                     // of the run; nil: any
	event  func(Event) error         // called for each event, in order
	result func(Event, result) error // called for the result of the event before
	last   Event
	open   bool  // the last event has no result yet
	line   int   // lines read
	good   int64 // bytes of whole lines
	torn   bool  // half a line follows them
}

// read reads the journal; no file has no lines. Half a last line, which a crash leaves, is no error.
func (r *reader) read() error {
	file, err := os.Open(r.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s cannot be read: %w", r.path, run.Cause(err))
	}
	defer file.Close()
	return r.readFrom(file)
}

func (r *reader) readFrom(in io.Reader) error {
	lines := bufio.NewReaderSize(in, maxLine)
	for {
		b, err := lines.ReadSlice('\n')
		if err == io.EOF {
			r.torn = len(b) > 0
			return nil
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return fmt.Errorf("%s cannot be read: %w", r.path, run.Cause(err))
		}
		size, zeros := int64(len(b)), bytes.IndexByte(b, 0) >= 0
		if err = r.take(b); err != nil {
			// A power cut may leave zeros where the last line was not written yet.
			if _, end := lines.Peek(1); end == io.EOF && zeros {
				r.torn = true
				return nil
			}
			return fmt.Errorf("%s:%d: %w", r.path, r.line+1, err)
		}
		r.line++
		r.good += size
	}
}

// take checks a whole line against the ones before.
func (r *reader) take(b []byte) error {
	kind, content, err := decodeLine(b)
	if err != nil {
		return err
	}
	switch kind {
	case lineRun:
		return r.takeFirst(content)
	case Join, Update, DeadlineLine, Leave:
		return r.takeEvent(content)
	case lineResult:
		return r.takeResult(content)
	}
	return fmt.Errorf("found a line %q, want run, join, update, deadline, leave or result", kind)
}

func (r *reader) takeFirst(content []byte) error {
	var f first
	if err := json.Unmarshal(content, &f); err != nil {
		return err
	}
	form := Form{Run: f.Run, Type: f.Type, D: f.D}
	switch {
	case r.line > 0:
		return errors.New("found the first line of a run in the middle")
	case f.Protocol != protocol.Version:
		return fmt.Errorf("found protocol version %d, want %d", f.Protocol, protocol.Version)
	case r.form == nil:
		r.form = &form
	case *r.form != form:
		return fmt.Errorf("the journal is of run %s with %d parameters of type %s, want run %s with %d of type %s",
			f.Run, f.D, f.Type, r.form.Run, r.form.D, r.form.Type)
	}
	return form.Check()
}

func (r *reader) takeEvent(content []byte) error {
	var e Event
	if err := json.Unmarshal(content, &e); err != nil {
		return err
	}
	switch {
	case r.line == 0:
		return errors.New("found an event, want the line of the run first")
	case r.open:
		return fmt.Errorf("found event %d, want the result of event %d", e.N, r.last.N)
	case e.N != r.last.N+1:
		return fmt.Errorf("found event %d, want event %d", e.N, r.last.N+1)
	case e.Agent < 0:
		return fmt.Errorf("found agent %d, want 0 or more", e.Agent)
	}
	r.last, r.open = e, true
	return r.event(e)
}

func (r *reader) takeResult(content []byte) error {
	var x result
	if err := json.Unmarshal(content, &x); err != nil {
		return err
	}
	if !r.open || x.N != r.last.N {
		return fmt.Errorf("found the result of event %d, which is not on the line before", x.N)
	}
	r.open = false
	return r.result(r.last, x)
}
