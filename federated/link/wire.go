package link

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/posttrain/posttrain/federated/protocol"
)

// Reasons why a message is refused, for errors.Is.
var (
	ErrDamaged = errors.New("damaged")             // cut short, or with flipped bits
	ErrForeign = errors.New("of another run")      // of another run, protocol version or kind
	ErrLength  = errors.New("longer than allowed") // with more numbers than the run's parameters allow
)

// Type is a type of numbers on the wire.
type Type string

// The types of parameters and updates.
const (
	Float32 Type = "float32"
	Float64 Type = "float64"
	masked  Type = "uint64" // sums of secure aggregation
)

// Size is the number of bytes of a number; 0 for an unknown type.
func (t Type) Size() int {
	switch t {
	case Float32:
		return 4
	case Float64, masked:
		return 8
	}
	return 0
}

// Round replaces each number by the nearest one of the type, so that server and agents hold the same.
func (t Type) Round(v []float64) {
	if t != Float32 {
		return
	}
	for i, x := range v {
		v[i] = float64(float32(x))
	}
}

const (
	maxHeader  = 256 << 10 // bytes of the header of a task or update
	maxNumbers = 64        // numbers of an update beside its vectors
	maxReturn  = 1e100     // so that sums of returns stay finite
	hashKey    = `,"sha256":"`
	hashEnd    = "\"}\n"
	hashBytes  = len(hashKey) + 2*sha256.Size + len(hashEnd)
)

// header is the first line of a message, without its hash.
type header struct {
	Message  string          `json:"posttrain"` // task, update or state
	Protocol int             `json:"protocol"`
	Run      string          `json:"run"`
	Sections []section       `json:"numbers"`
	Facts    json.RawMessage `json:"facts"`
}

// section says what a part of the numbers is.
type section struct {
	Name  string `json:"name"`
	Type  Type   `json:"type"`
	Count int    `json:"count"`
}

// part is a section with its numbers: floats, or sums of secure aggregation.
type part struct {
	section
	floats []float64
	sums   []uint64
}

func floats(name string, t Type, v []float64) part {
	return part{section: section{name, t, len(v)}, floats: v}
}

// encode writes a message.
func encode(message, run string, facts any, parts []part) ([]byte, error) {
	body, err := json.Marshal(facts)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be written: %w", message, err)
	}
	h, size := header{Message: message, Protocol: protocol.Version, Run: run, Sections: []section{}, Facts: body}, 0
	for _, p := range parts {
		h.Sections = append(h.Sections, p.section)
		size += p.Count * p.Type.Size()
	}
	line, err := json.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be written: %w", message, err)
	}
	line = line[:len(line)-1] // the hash takes the closing brace's place
	b := append(make([]byte, 0, len(line)+hashBytes+size), line...)
	b = append(b, make([]byte, hashBytes)...)
	for _, p := range parts {
		b = p.append(b)
	}
	sum := hashOf(b[:len(line)], b[len(line)+hashBytes:])
	copy(b[len(line):], hashKey+sum+hashEnd)
	return b, nil
}

func hashOf(line, numbers []byte) string {
	h := sha256.New()
	h.Write(line)
	h.Write(numbers)
	return hex.EncodeToString(h.Sum(nil))
}

func (p part) append(b []byte) []byte {
	for _, x := range p.floats {
		if p.Type == Float32 {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(x)))
		} else {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
		}
	}
	for _, x := range p.sums {
		b = binary.LittleEndian.AppendUint64(b, x)
	}
	return b
}

// split separates a message's header line from its numbers, without the line's hash, which it returns.
func split(b []byte) (line []byte, hash string, numbers []byte, ok bool) {
	n := bytes.IndexByte(b, '\n') + 1
	if n < hashBytes {
		return nil, "", nil, false
	}
	line, end := b[:n-hashBytes], string(b[n-hashBytes:n])
	if end[:len(hashKey)] != hashKey || end[len(end)-len(hashEnd):] != hashEnd {
		return nil, "", nil, false
	}
	return line, end[len(hashKey) : len(end)-len(hashEnd)], b[n:], true
}

// Payload is the number of bytes of a message's numbers.
func Payload(message []byte) int {
	_, _, numbers, _ := split(message)
	return len(numbers)
}

// decode reads a message's header and facts. What follows are its numbers, for [header.parts]. An empty run allows
// every run.
func decode(b []byte, message, run string, facts any) (h header, numbers []byte, err error) {
	line, hash, numbers, ok := split(b)
	switch {
	case !ok:
		return h, nil, fmt.Errorf("%w: no header line that ends with a hash", ErrDamaged)
	case hashOf(line, numbers) != hash:
		return h, nil, fmt.Errorf("%w: its SHA-256 is not the one in its header, %.8s…", ErrDamaged, hash)
	}
	if err := json.Unmarshal(append(bytes.Clone(line), '}'), &h); err != nil {
		return h, nil, fmt.Errorf("%w: its header is not JSON: %s", ErrDamaged, err)
	}
	if err := h.check(message, run); err != nil {
		return h, nil, err
	}
	if err := json.Unmarshal(h.Facts, facts); err != nil {
		return h, nil, fmt.Errorf("%w: its facts are not those of a message of its kind: %s", ErrDamaged, err)
	}
	return h, numbers, nil
}

// check compares a header with what the reader wants.
func (h header) check(message, run string) error {
	switch {
	case h.Message != message:
		return fmt.Errorf("%w: found %q, want %q", ErrForeign, h.Message, message)
	case h.Protocol != protocol.Version:
		return fmt.Errorf("%w: found protocol version %d, want %d", ErrForeign, h.Protocol, protocol.Version)
	case run != "" && h.Run != run:
		return fmt.Errorf("%w: found run %q, want %q", ErrForeign, h.Run, run)
	}
	return nil
}

// parts cuts the numbers into sections. allow is asked for each before anything is made for it.
func (h header) parts(numbers []byte, allow func(section) error) ([]part, error) {
	parts := make([]part, 0, min(len(h.Sections), 16))
	for _, s := range h.Sections {
		size := s.Type.Size()
		if size == 0 || s.Count < 0 {
			return nil, fmt.Errorf("%w: %d numbers of type %q, want 0 or more of type float32, float64 or uint64",
				ErrDamaged, s.Count, s.Type)
		}
		if err := allow(s); err != nil {
			return nil, err
		}
		if s.Count > len(numbers)/size {
			return nil, fmt.Errorf("%w: %d bytes of numbers, want %d of %d bytes", ErrDamaged, len(numbers), s.Count,
				size)
		}
		parts = append(parts, s.read(numbers[:s.Count*size]))
		numbers = numbers[s.Count*size:]
	}
	if len(numbers) > 0 {
		return nil, fmt.Errorf("%w: %d bytes too many", ErrDamaged, len(numbers))
	}
	return parts, nil
}

func (s section) read(b []byte) part {
	p := part{section: s}
	if s.Type == masked {
		p.sums = make([]uint64, s.Count)
		for i := range p.sums {
			p.sums[i] = binary.LittleEndian.Uint64(b[8*i:])
		}
		return p
	}
	p.floats = make([]float64, s.Count)
	for i := range p.floats {
		if s.Type == Float32 {
			p.floats[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])))
		} else {
			p.floats[i] = math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
		}
	}
	return p
}
