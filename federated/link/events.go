package link

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"slices"

	"github.com/posttrain/posttrain/federated/protocol"
	"github.com/posttrain/posttrain/internal/run"
)

// What a line of the journal says, its key "line".
const (
	lineRun    = "run" // the first line
	Join       = "join"
	Update     = "update"
	Deadline   = "deadline"
	Leave      = "leave"
	lineResult = "result" // of a journal that an older program has written: what the event before has led to
)

// Event is what happened to the server. Events are numbered in their order, from 1.
type Event struct {
	Line    string        `json:"line"` // Join, Update, Deadline or Leave
	N       int           `json:"n"`
	Agent   int           `json:"agent"`
	Kind    protocol.Kind `json:"kind,omitempty"`    // of an update
	Version int           `json:"version,omitempty"` // of an update
	File    string        `json:"file,omitempty"`    // SHA-256 of an update's file, which has it as its name
	At      int           `json:"at,omitempty"`      // the server's version before the event
}

// line is any line. The first one has what all messages of the run have in common.
type line struct {
	Event
	Run      string `json:"run"`
	Protocol int    `json:"protocol"`
	Type     Type   `json:"type"`
	D        int    `json:"d"`
}

// firstLine is the journal's first line.
func firstLine(f Format, version int) []byte {
	return encodeLine(struct {
		Line     string `json:"line"`
		Run      string `json:"run"`
		Protocol int    `json:"protocol"`
		Type     Type   `json:"type"`
		D        int    `json:"d"`
	}{lineRun, f.Run, version, f.Type, f.D})
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
	return sealLine(b[:len(b)-1])
}

func sealLine(b []byte) []byte {
	return fmt.Appendf(b, "%s%08x%s", sumKey, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)), sumEnd)
}

// reader reads a journal and checks that nothing is missing.
type reader struct {
	path   string
	format Format            // of the run; empty: any
	event  func(Event) error // called for each event, in order
	last   int               // event
	line   int               // lines read
	good   int64             // bytes of whole lines
	torn   bool              // half a line follows them
}

// read reads the journal. Half a last line, which a crash leaves, is no error.
func (r *reader) read(in io.Reader) error {
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
		if err = r.check(b); err != nil {
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

// check checks a whole line against the ones before.
func (r *reader) check(b []byte) error {
	n := len(b) - sumBytes
	if n < 1 || !bytes.Equal(b, sealLine(bytes.Clone(b[:n]))) {
		return errors.New("the line is damaged: its checksum is not that of its content")
	}
	var l line
	if err := json.Unmarshal(append(bytes.Clone(b[:n]), '}'), &l); err != nil {
		return fmt.Errorf("not a line of a journal: %w", err)
	}
	switch {
	case l.Line == lineRun && r.line == 0:
		return r.begin(Format{Run: l.Run, Type: l.Type, D: l.D}, l.Protocol)
	case l.Line == lineResult:
		return nil
	case !slices.Contains([]string{Join, Update, Deadline, Leave}, l.Line) || r.line == 0:
		return fmt.Errorf("found a line %q, want run first, and then join, update, deadline or leave", l.Line)
	case l.N != r.last+1:
		return fmt.Errorf("found event %d, want event %d", l.N, r.last+1)
	case l.Agent < 0:
		return fmt.Errorf("found agent %d, want 0 or more", l.Agent)
	}
	r.last = l.N
	return r.event(l.Event)
}

func (r *reader) begin(f Format, version int) error {
	if version != protocol.Version {
		return fmt.Errorf("found protocol version %d, want %d", version, protocol.Version)
	}
	if r.format != (Format{}) && r.format != f {
		return fmt.Errorf("the journal is of run %s with %d parameters of type %s, want run %s with %d of type %s", f.Run,
			f.D, f.Type, r.format.Run, r.format.D, r.format.Type)
	}
	return f.Check()
}

func sumOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Hash is the SHA-256 of a vector's float64 numbers, little-endian.
func Hash(v []float64) string {
	b, _ := binary.Append(nil, binary.LittleEndian, v) // an error: of other types than this
	return sumOf(b)
}

// openFile opens a journal to read it; one that is not there has no lines.
func openFile(path string) (io.ReadCloser, error) {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return io.NopCloser(bytes.NewReader(nil)), nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", path, run.Cause(err))
	}
	return file, nil
}
