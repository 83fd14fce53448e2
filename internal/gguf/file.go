package gguf

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/internal/files"
)

const (
	magic      = "GGUF"
	alignKey   = "general.alignment"
	maxDims    = 4
	maxEntries = 1 << 16
	maxTensors = 1 << 17
	maxText    = 64 << 20
)

// Tensor is a tensor's line in a file.
type Tensor struct {
	Name  string
	Shape []int // row-major: a matrix is [rows, columns]; the file lists columns first
	Type  Type

	in io.ReaderAt // the file
	at int64       // of the first byte in it
}

// Size is the number of numbers.
func (t *Tensor) Size() int {
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// bytes is the tensor's size in the file.
func (t *Tensor) bytes() int64 {
	c := codecs[t.Type]
	return int64(t.Size() / c.block * c.bytes)
}

// Part is matrix i of a tensor of several, [parts, rows, columns].
func (t *Tensor) Part(i int) *Tensor {
	part := Tensor{Name: t.Name, Shape: t.Shape[1:], Type: t.Type, in: t.in}
	part.at = t.at + int64(i)*part.bytes()
	return &part
}

// File is an open file. Its metadata is in memory, its tensors are not.
type File struct {
	Version uint32
	Meta    []Entry
	Tensors []Tensor // in the order of the file

	keys        map[string]int // indices in Meta
	tensorIndex map[string]int // indices in Tensors
	label       string
	closer      []io.Closer
	buffer      []byte
}

// Open reads the metadata of a file and the list of its tensors. A model in several files is opened by its first,
// NAME-00001-of-00003.gguf. Errors begin with the path.
func Open(path string) (*File, error) {
	f, err := openOne(path)
	if err != nil {
		return nil, err
	}
	if err := f.openParts(path); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func openOne(path string) (*File, error) {
	dir, name := filepath.Split(path)
	f, err := files.Open(os.DirFS(cmp.Or(dir, ".")), name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, files.Cause(err))
	}
	var out *File
	info, err := f.Stat()
	if err == nil {
		out, err = Read(f.(io.ReaderAt), info.Size()) // as files of a folder on disk are
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, files.Cause(err))
	}
	out.label, out.closer = path+": ", []io.Closer{f}
	return out, nil
}

// maxParts is the most files of a model: their names have five digits.
const maxParts = 99999

// openParts adds the tensors of the other files of a model.
func (f *File) openParts(path string) error {
	x := &Fields{File: f}
	count, number := x.Whole("split.count", 1), x.Whole("split.no", 0)
	first := fmt.Sprintf("-00001-of-%05d.gguf", count)
	switch {
	case x.Err != nil || count == 1:
		return x.Err
	case count < 1 || count > maxParts:
		x.Fail("split.count", "found %d, want 1 to %d", count, maxParts)
	case number != 0:
		x.Fail("split.no", "found %d, want 0: name the first of the %d files", number, count)
	case !strings.HasSuffix(path, first):
		x.Fail("split.count", "found %d, want a file whose name ends with %s beside the others", count, first)
	}
	for i := 1; i < count && x.Err == nil; i++ {
		part, err := openOne(fmt.Sprintf("%s-%05d-of-%05d.gguf", strings.TrimSuffix(path, first), i+1, count))
		if err != nil {
			return err
		}
		f.closer, f.Tensors = append(f.closer, part.closer...), append(f.Tensors, part.Tensors...)
		of := &Fields{File: part}
		if n := of.Whole("split.no", 0); n != i {
			of.Fail("split.no", "found %d, want %d", n, i)
		}
		x.Err = of.Err
	}
	if n := x.Whole("split.tensors.count", len(f.Tensors)); n != len(f.Tensors) {
		x.Fail("split.tensors.count", "found %d, want %d, which the files have", n, len(f.Tensors))
	}
	clear(f.tensorIndex)
	for i, t := range f.Tensors {
		if _, twice := f.tensorIndex[t.Name]; twice {
			x.Fail("tensor "+quoted(t.Name), "found it in two files, want each name once")
		}
		f.tensorIndex[t.Name] = i
	}
	return x.Err
}

// Close closes the files that Open opened.
func (f *File) Close() error {
	var all []error
	for _, c := range f.closer {
		all = append(all, c.Close())
	}
	return errors.Join(all...)
}

// Read is Open of bytes that need not be a file.
func Read(r io.ReaderAt, size int64) (*File, error) {
	s := &scanner{r: bufio.NewReaderSize(io.NewSectionReader(r, 0, size), 1<<16), size: size}
	f := &File{keys: map[string]int{}, tensorIndex: map[string]int{}}
	tensors, entries := s.header(f)
	for i := 0; i < entries && s.err == nil; i++ {
		s.where = fmt.Sprintf("key %d of %d", i+1, entries)
		e := Entry{Key: s.text()}
		s.where = "key " + quoted(e.Key)
		e.Value = s.value()
		if _, twice := f.keys[e.Key]; twice {
			s.fail("found it twice, want each key once")
		}
		f.keys[e.Key] = i
		f.Meta = append(f.Meta, e)
	}
	for i := 0; i < tensors && s.err == nil; i++ {
		s.where = fmt.Sprintf("tensor %d of %d", i+1, tensors)
		f.Tensors = append(f.Tensors, s.tensor())
	}
	if s.err != nil {
		return nil, s.err
	}
	return f, f.locate(r, s.at, size)
}

// header reads the first part.
func (s *scanner) header(f *File) (tensors, entries int) {
	s.where = "header"
	switch found := string(s.bytes(4)); {
	case s.err != nil || found == magic:
	case found == "FUGG":
		s.fail("found a big-endian file, want a little-endian one")
	default:
		s.err = fmt.Errorf("found %q at the beginning, want %q: not a GGUF file", found, magic)
	}
	f.Version = s.number32()
	if s.err == nil && f.Version != 2 && f.Version != 3 {
		s.err = fmt.Errorf("found version %d of the format, want 2 or 3", f.Version)
	}
	tensors, entries = s.count("tensors"), s.count("keys")
	if s.err == nil && (tensors > maxTensors || entries > maxEntries) {
		s.err = fmt.Errorf("found %d tensors and %d keys, want at most %d and %d", tensors, entries, maxTensors,
			maxEntries)
	}
	return tensors, entries
}

// tensor reads a tensor's line.
func (s *scanner) tensor() Tensor {
	t := Tensor{Name: s.text()}
	s.where = "tensor " + quoted(t.Name)
	dims := s.number32()
	if s.err == nil && (dims < 1 || dims > maxDims) {
		s.fail("found %d dimensions, want 1 to %d", dims, maxDims)
	}
	all := 1
	for i := uint32(0); i < dims && s.err == nil; i++ {
		d := s.count("numbers")
		if s.err == nil && (d < 1 || d > math.MaxInt32 || all > (1<<48)/d) {
			s.fail("found %d as a dimension, want 1 or more, and at most 2^48 numbers", d)
		}
		if s.err == nil {
			all *= d
		}
		t.Shape = append(t.Shape, d)
	}
	t.Type = Type(s.number32())
	c, ok := codecs[t.Type]
	if s.err == nil && !ok {
		s.fail("found %s, which is not read: want %s", t.Type, Names(Readable, ", "))
	}
	if s.err == nil && t.Shape[0]%c.block != 0 {
		s.fail("found rows of %d numbers, want a multiple of %d for %s", t.Shape[0], c.block, t.Type)
	}
	t.at = int64(s.count("bytes before it"))
	slices.Reverse(t.Shape)
	return t
}

// locate says where in the file each tensor is, and refuses places beyond its end or within each other.
func (f *File) locate(in io.ReaderAt, end, size int64) error {
	align := int64(32)
	if v, ok := f.Get(alignKey); ok {
		n, whole := asWhole(v)
		if !whole || n < 1 || n > 1<<20 || n&(n-1) != 0 {
			return fmt.Errorf("%s: found %v, want a power of two up to 2^20", alignKey, v)
		}
		align = int64(n)
	}
	start := (end + align - 1) / align * align
	order := make([]*Tensor, len(f.Tensors))
	for i := range f.Tensors {
		t := &f.Tensors[i]
		if _, twice := f.tensorIndex[t.Name]; twice {
			return fmt.Errorf("tensor %s: found it twice, want each name once", quoted(t.Name))
		}
		f.tensorIndex[t.Name], order[i] = i, t
		switch {
		case t.at%align != 0:
			return fmt.Errorf("tensor %s: found it at byte %d, want a multiple of %d", quoted(t.Name), t.at, align)
		case t.at > size-start || t.bytes() > size-start-t.at:
			return fmt.Errorf("truncated: tensor %s ends at byte %d, the file has %d", quoted(t.Name),
				start+t.at+t.bytes(), size)
		}
		t.in, t.at = in, t.at+start
	}
	slices.SortFunc(order, func(a, b *Tensor) int { return cmp.Compare(a.at, b.at) })
	for i := 1; i < len(order); i++ {
		if a, b := order[i-1], order[i]; a.at+a.bytes() > b.at {
			return fmt.Errorf("tensors %s and %s: their bytes overlap", quoted(a.Name), quoted(b.Name))
		}
	}
	return nil
}

// Get is the value of a key.
func (f *File) Get(key string) (any, bool) {
	i, ok := f.keys[key]
	if !ok {
		return nil, false
	}
	return f.Meta[i].Value, true
}

// Find is the tensor of a name, or nil.
func (f *File) Find(name string) *Tensor {
	if i, ok := f.tensorIndex[name]; ok {
		return &f.Tensors[i]
	}
	return nil
}

// pieceSize is the number of numbers that are read at once: whole blocks of every type.
const pieceSize = 1 << 16

// Read decodes a tensor's numbers, row-major. It is not safe for concurrent use.
func (f *File) Read(t *Tensor, to []float32) error {
	if len(to) != t.Size() {
		return fmt.Errorf("%stensor %s: found room for %d numbers, want %d", f.label, t.Name, len(to), t.Size())
	}
	c := codecs[t.Type]
	if f.buffer == nil {
		f.buffer = make([]byte, 4*pieceSize)
	}
	at := t.at
	for x := range slices.Chunk(to, pieceSize) {
		b := f.buffer[:len(x)/c.block*c.bytes]
		if n, err := t.in.ReadAt(b, at); n < len(b) {
			return fmt.Errorf("%stensor %s: %w", f.label, t.Name, files.Cause(err))
		}
		at += int64(len(b))
		for i := 0; i < len(x); i += c.block {
			c.decode(b[i/c.block*c.bytes:], x[i:i+c.block])
		}
	}
	return nil
}

// scanner reads the parts before the tensors, and keeps the first fault.
type scanner struct {
	r        *bufio.Reader
	at, size int64
	where    string // for faults
	err      error
}

func (s *scanner) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf("%s: %s", s.where, fmt.Sprintf(format, args...))
	}
}

// bytes reads n bytes, if the file has them.
func (s *scanner) bytes(n int) []byte {
	if s.err == nil && int64(n) > s.size-s.at {
		s.fail("truncated: it wants %d bytes, and the file ends %d bytes later", n, s.size-s.at)
	}
	if s.err != nil {
		return nil
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(s.r, b); err != nil {
		s.err = err
		return nil
	}
	s.at += int64(n)
	return b
}

func (s *scanner) number32() uint32 {
	if b := s.bytes(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

// count reads a 64-bit number of things.
func (s *scanner) count(what string) int {
	b := s.bytes(8)
	if b == nil {
		return 0
	}
	n := binary.LittleEndian.Uint64(b)
	if n > 1<<50 {
		s.fail("found %d %s, want at most 2^50", n, what)
		return 0
	}
	return int(n)
}

func (s *scanner) text() string {
	n := s.count("bytes of text")
	if s.err == nil && n > maxText {
		s.fail("found a text of %d bytes, want at most %d", n, maxText)
	}
	return string(s.bytes(n))
}

// quoted is a name for a message: at most 80 bytes of it, and a quoted one if it has blanks or worse.
func quoted(name string) string {
	q := fmt.Sprintf("%.80q", name)
	if q[1:len(q)-1] == name && name != "" && !slices.Contains([]byte(name), ' ') {
		return name
	}
	return q
}
