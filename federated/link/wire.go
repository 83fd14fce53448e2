package link

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/posttrain/posttrain/federated"
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

// sizes are the bytes of a number.
var sizes = map[Type]int{Float32: 4, Float64: 8, masked: 8}

const (
	hashKey   = `,"sha256":"`
	hashEnd   = "\"}\n"
	hashBytes = len(hashKey) + 2*sha256.Size + len(hashEnd)
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
	h, size := header{Message: message, Protocol: protocol.Version, Run: run, Sections: []section{}}, 0
	for _, p := range parts {
		h.Sections = append(h.Sections, p.section)
		size += p.Count * sizes[p.Type]
	}
	var line []byte
	body, err := json.Marshal(facts)
	if err == nil {
		h.Facts = body
		line, err = json.Marshal(h)
	}
	if err != nil {
		return nil, fmt.Errorf("%s cannot be written: %w", message, err)
	}
	line = line[:len(line)-1] // the hash takes the closing brace's place
	b := append(make([]byte, 0, len(line)+hashBytes+size), line...)
	b = append(b, make([]byte, hashBytes)...)
	for _, p := range parts {
		b = p.append(b)
	}
	copy(b[len(line):], hashKey+hashOf(line, b[len(line)+hashBytes:])+hashEnd)
	return b, nil
}

func (p part) append(b []byte) []byte {
	var numbers any = p.floats
	switch p.Type {
	case Float32:
		numbers = federated.Narrow(p.floats)
	case masked:
		numbers = p.sums
	}
	b, _ = binary.Append(b, binary.LittleEndian, numbers) // an error: of other types than these
	return b
}

func hashOf(line, numbers []byte) string {
	h := sha256.New()
	h.Write(line)
	h.Write(numbers)
	return hex.EncodeToString(h.Sum(nil))
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

// decode reads a message. An empty run allows every run; most are the sections that it may have, each with its longest
// count and how often it may come, nil: any of float64.
func decode(b []byte, message, run string, facts any, most map[section]int) (parts []part, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w", message, err)
		}
	}()
	line, hash, numbers, ok := split(b)
	if !ok {
		return nil, fmt.Errorf("%w: no header line that ends with a hash", ErrDamaged)
	}
	if hashOf(line, numbers) != hash {
		return nil, fmt.Errorf("%w: its SHA-256 is not the one in its header, %.8s…", ErrDamaged, hash)
	}
	var h header
	if err := json.Unmarshal(append(bytes.Clone(line), '}'), &h); err != nil {
		return nil, fmt.Errorf("%w: its header is not JSON: %s", ErrDamaged, err)
	}
	switch {
	case h.Message != message:
		return nil, fmt.Errorf("%w: found %q, want %q", ErrForeign, h.Message, message)
	case h.Protocol != protocol.Version:
		return nil, fmt.Errorf("%w: found protocol version %d, want %d", ErrForeign, h.Protocol, protocol.Version)
	case run != "" && h.Run != run:
		return nil, fmt.Errorf("%w: found run %q, want %q", ErrForeign, h.Run, run)
	}
	if err := json.Unmarshal(h.Facts, facts); err != nil {
		return nil, fmt.Errorf("%w: its facts are not those of a message of its kind: %s", ErrDamaged, err)
	}
	return cutNumbers(h.Sections, numbers, most)
}

// cutNumbers cuts the numbers into sections. Nothing is made for one that is not allowed, or not there.
func cutNumbers(sections []section, numbers []byte, most map[section]int) (parts []part, err error) {
	for _, s := range sections {
		size := sizes[s.Type]
		switch {
		case size == 0 || s.Count < 0:
			return nil, fmt.Errorf("%w: %d numbers of type %q, want 0 or more of type float32, float64 or uint64",
				ErrDamaged, s.Count, s.Type)
		case !allow(most, s):
			return nil, fmt.Errorf("%w: %d numbers of type %s as %q", ErrLength, s.Count, s.Type, s.Name)
		case s.Count > len(numbers)/size:
			return nil, fmt.Errorf("%w: %d bytes of numbers, want %d of %d bytes", ErrDamaged, len(numbers), s.Count, size)
		}
		parts = append(parts, s.read(numbers[:s.Count*size]))
		numbers = numbers[s.Count*size:]
	}
	if len(numbers) > 0 {
		return nil, fmt.Errorf("%w: %d bytes too many", ErrDamaged, len(numbers))
	}
	return parts, nil
}

// allow takes a section from those that are left.
func allow(left map[section]int, s section) bool {
	if left == nil {
		return s.Type == Float64
	}
	for most, n := range left {
		if most.Name == s.Name && most.Type == s.Type && s.Count <= most.Count && n > 0 {
			left[most]--
			return true
		}
	}
	return false
}

func (s section) read(b []byte) part {
	p := part{section: s}
	var numbers any
	switch s.Type {
	case Float32:
		narrow := make([]float32, s.Count)
		binary.Decode(b, binary.LittleEndian, narrow)
		p.floats = federated.Widen(narrow)
		return p
	case masked:
		p.sums = make([]uint64, s.Count)
		numbers = p.sums
	default:
		p.floats = make([]float64, s.Count)
		numbers = p.floats
	}
	binary.Decode(b, binary.LittleEndian, numbers) // an error: of fewer bytes than these
	return p
}
