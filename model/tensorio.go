package model

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/gomlx/compute/shapes"

	"github.com/posttrain/posttrain/internal/float"
)

// Tensor is a named array of a safetensors file; exactly one of Floats, Ints and Read has its elements, row-major.
type Tensor struct {
	Name   string
	Shape  []int
	Floats []float32 // stored as F32 (read also from F16 and BF16)
	Ints   []int64   // stored as I64 (read also from I32)

	Read func() ([]float32, error) // gives Floats when they are written; the slice may be freed after that
}

// elements is the number of elements that the fields give.
func (t *Tensor) elements() int {
	if t.Read != nil {
		return shapes.Shape{Dimensions: t.Shape}.Size()
	}
	return len(t.Floats) + len(t.Ints)
}

// WriteTensors writes a safetensors file atomically: path holds either the old content or all of the new. meta may be
// nil.
func WriteTensors(path string, tensors []Tensor, meta map[string]string) error {
	return Writer{}.WriteTensors(path, tensors, meta)
}

// WriteTensors is the function of that name.
func (w Writer) WriteTensors(path string, tensors []Tensor, meta map[string]string) error {
	return w.write(path, tensors, "F32", meta)
}

// ReadTensors reads all tensors of a safetensors file, in their order, and the metadata.
func ReadTensors(path string) (all []Tensor, meta map[string]string, err error) {
	s, err := OpenTensors(path)
	if err != nil {
		return nil, nil, err
	}
	defer s.Close()
	f := s.files[0]
	for _, name := range f.namesByOffset() {
		t, err := f.tensor(name)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, t)
	}
	return all, f.Meta, nil
}

// OpenTensors opens a safetensors file. The caller closes it.
func OpenTensors(path string) (*Stored, error) {
	s, dir := &Stored{label: path}, filepath.Dir(path)
	return s, s.open(os.DirFS(dir), dir, []string{filepath.Base(path)})
}

// Check refuses a tensor that is missing or has another size.
func (s *Stored) Check(name string, size int) error {
	f, n := s.find(name), 0
	if f != nil {
		n = shapes.Shape{Dimensions: f.Tensors[name].Shape}.Size()
	}
	if f == nil || n != size {
		return fmt.Errorf("%s: tensor %s has %d numbers: want %d", s.label, name, n, size)
	}
	return nil
}

// Read copies a tensor's values.
func (s *Stored) Read(name string, to []float32) error {
	if err := s.Check(name, len(to)); err != nil {
		return err
	}
	f := s.find(name)
	return f.floats(name, func(x []float32, at int) error { copy(to[at:], x); return nil })
}

func (t *tensorFile) tensor(name string) (Tensor, error) {
	info := t.Tensors[name]
	out := Tensor{Name: name, Shape: info.Shape}
	n := shapes.Shape{Dimensions: info.Shape}.Size()
	switch info.DType {
	case "I64", "I32":
		out.Ints = make([]int64, n)
		return out, t.read(name, make([]byte, 8*stretchSize), func(b []byte, at int) error {
			for i := range len(b) / dtypeSizes[info.DType] {
				if info.DType == "I32" {
					out.Ints[at+i] = int64(int32(binary.LittleEndian.Uint32(b[4*i:])))
				} else {
					out.Ints[at+i] = int64(binary.LittleEndian.Uint64(b[8*i:]))
				}
			}
			return nil
		})
	}
	out.Floats = make([]float32, n)
	return out, t.floats(name, func(x []float32, at int) error { copy(out.Floats[at:], x); return nil })
}

func encodeTensors(w io.Writer, tensors []Tensor, floats string, meta map[string]string) error {
	header, err := encodeHeader(tensors, floats, meta)
	if err != nil {
		return err
	}
	var length [8]byte
	binary.LittleEndian.PutUint64(length[:], uint64(len(header)))
	if _, err := w.Write(append(length[:], header...)); err != nil {
		return err
	}
	for _, t := range tensors {
		if err := encodeData(w, t, floats); err != nil {
			return err
		}
	}
	return nil
}

func encodeHeader(tensors []Tensor, floats string, meta map[string]string) ([]byte, error) {
	entries := map[string]any{}
	if meta != nil {
		entries["__metadata__"] = meta
	}
	at := int64(0)
	for _, t := range tensors {
		if _, twice := entries[t.Name]; twice || t.Name == "__metadata__" {
			return nil, fmt.Errorf("tensor %s: the name is already used", t.Name)
		}
		dtype, n := floats, t.elements()
		if t.Ints != nil {
			dtype = "I64"
		}
		if want := (shapes.Shape{Dimensions: t.Shape}).Size(); n != want {
			return nil, fmt.Errorf("tensor %s: found %d elements, want %d for shape %v", t.Name, n, want, t.Shape)
		}
		end := at + int64(n*dtypeSizes[dtype])
		shape := t.Shape
		if shape == nil { // a scalar's shape is [], not null
			shape = []int{}
		}
		entries[t.Name] = tensorInfo{DType: dtype, Shape: shape, Offsets: [2]int64{at, end}}
		at = end
	}
	b, err := json.Marshal(entries)
	for err == nil && len(b)%8 != 0 { // align the data
		b = append(b, ' ')
	}
	return b, err
}

func encodeData(w io.Writer, t Tensor, floats string) error {
	if t.Ints != nil {
		return encodePieces(w, t.Ints, 8, func(x []int64, out []byte) {
			for i, v := range x {
				binary.LittleEndian.PutUint64(out[8*i:], uint64(v))
			}
		})
	}
	x := t.Floats
	if t.Read != nil {
		var err error
		if x, err = t.Read(); err == nil && len(x) != t.elements() {
			err = fmt.Errorf("found %d elements, want %d for shape %v", len(x), t.elements(), t.Shape)
		}
		if err != nil {
			return fmt.Errorf("tensor %s: %w", t.Name, err)
		}
	}
	return encodePieces(w, x, dtypeSizes[floats], floatEncoders[floats])
}

// encodePieces writes x in pieces, of width bytes an element.
func encodePieces[T any](w io.Writer, x []T, width int, encode func(x []T, out []byte)) error {
	buf := make([]byte, width<<16)
	for p := range slices.Chunk(x, 1<<16) {
		encode(p, buf)
		if _, err := w.Write(buf[:width*len(p)]); err != nil {
			return err
		}
	}
	return nil
}

// floatDecoders turn little-endian bytes of a dtype into float32, F64 with rounding.
var floatDecoders = map[string]func(b []byte, out []float32){
	"F64": func(b []byte, out []float32) {
		for i := range len(b) / 8 {
			out[i] = float32(math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:])))
		}
	},
	"F32": func(b []byte, out []float32) {
		for i := range len(b) / 4 {
			out[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
		}
	},
	"F16": func(b []byte, out []float32) {
		for i := range len(b) / 2 {
			out[i] = float.FromFloat16(binary.LittleEndian.Uint16(b[2*i:]))
		}
	},
	"BF16": func(b []byte, out []float32) {
		for i := range len(b) / 2 {
			out[i] = float.FromBFloat16(binary.LittleEndian.Uint16(b[2*i:]))
		}
	},
}

// floatEncoders turn float32 into little-endian bytes of a dtype, rounded to nearest, ties to even.
var floatEncoders = map[string]func(x []float32, out []byte){
	"F32": func(x []float32, out []byte) {
		for i, v := range x {
			binary.LittleEndian.PutUint32(out[4*i:], math.Float32bits(v))
		}
	},
	"F16": func(x []float32, out []byte) {
		for i, v := range x {
			binary.LittleEndian.PutUint16(out[2*i:], float.Float16(v))
		}
	},
	"BF16": func(x []float32, out []byte) {
		for i, v := range x {
			binary.LittleEndian.PutUint16(out[2*i:], float.BFloat16(v))
		}
	},
}

// fileDTypes maps the dtypes of config.json to safetensors', configDTypes the other way.
var fileDTypes = map[string]string{"float32": "F32", "float16": "F16", "bfloat16": "BF16"}
var configDTypes = map[string]string{"F64": "float32", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
