package model

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// Tensor is a named array of a safetensors file; exactly one of Floats and Ints holds its elements, row-major.
type Tensor struct {
	Name   string
	Shape  []int
	Floats []float32 // stored as F32 (read also from F16 and BF16)
	Ints   []int64   // stored as I64 (read also from I32)
}

// WriteTensors writes a safetensors file under a temporary name and renames it, so that path holds either the old
// content or all of the new. meta may be nil.
func WriteTensors(path string, tensors []Tensor, meta map[string]string) error {
	return writeTensorFile(path, tensors, "F32", meta)
}

// ReadTensors reads every tensor of a safetensors file in the order of the file, and the file's metadata.
func ReadTensors(path string) ([]Tensor, map[string]string, error) {
	f, err := openTensors(os.DirFS(filepath.Dir(path)), filepath.Base(path), path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	var out []Tensor
	for _, name := range f.sorted() {
		t, err := f.tensor(name)
		if err != nil {
			return nil, nil, err
		}
		out = append(out, t)
	}
	return out, f.Meta, nil
}

func (t *tensorFile) tensor(name string) (Tensor, error) {
	info := t.Tensors[name]
	out := Tensor{Name: name, Shape: info.Shape}
	n := size(info.Shape)
	switch info.DType {
	case "I64", "I32":
		out.Ints = make([]int64, n)
		return out, t.read(name, func(b []byte, at int) { decodeInts(info.DType, b, out.Ints[at:]) })
	}
	out.Floats = make([]float32, n)
	return out, t.floats(name, out.Floats)
}

func decodeInts(dtype string, b []byte, out []int64) {
	if dtype == "I32" {
		for i := range len(b) / 4 {
			out[i] = int64(int32(binary.LittleEndian.Uint32(b[4*i:])))
		}
		return
	}
	for i := range len(b) / 8 {
		out[i] = int64(binary.LittleEndian.Uint64(b[8*i:]))
	}
}

// writeTensorFile writes path atomically; floats is the dtype of the Floats tensors in the file.
func writeTensorFile(path string, tensors []Tensor, floats string, meta map[string]string) error {
	f, err := renameio.NewPendingFile(path, renameio.WithPermissions(0o644))
	if err != nil {
		return fmt.Errorf("%s: %w", path, cause(err))
	}
	defer f.Cleanup() //nolint:errcheck // nothing to do about a temporary file that cannot be removed
	w := bufio.NewWriterSize(f, 1<<20)
	if err := encodeTensors(w, tensors, floats, meta); err != nil {
		return fmt.Errorf("%s: %w", path, cause(err))
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("%s: %w", path, cause(err))
	}
	if err := f.CloseAtomicallyReplace(); err != nil {
		return fmt.Errorf("%s: %w", path, cause(err))
	}
	return nil
}

// encodeTensors writes header and data in the given order.
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
			return nil, fmt.Errorf("tensor %s: the name is taken", t.Name)
		}
		dtype, n := floats, len(t.Floats)
		if t.Ints != nil {
			dtype, n = "I64", len(t.Ints)
		}
		if n != size(t.Shape) {
			return nil, fmt.Errorf("tensor %s: %d elements do not fill shape %v", t.Name, n, t.Shape)
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
	for err == nil && len(b)%8 != 0 { // data starts aligned
		b = append(b, ' ')
	}
	return b, err
}

// encodeData writes one tensor's bytes in pieces.
func encodeData(w io.Writer, t Tensor, floats string) error {
	const piece = 1 << 16
	buf := make([]byte, 8*piece)
	for x := t.Ints; len(x) > 0; x = x[min(piece, len(x)):] {
		p := x[:min(piece, len(x))]
		for i, v := range p {
			binary.LittleEndian.PutUint64(buf[8*i:], uint64(v))
		}
		if _, err := w.Write(buf[:8*len(p)]); err != nil {
			return err
		}
	}
	for x := t.Floats; len(x) > 0; x = x[min(piece, len(x)):] {
		p := x[:min(piece, len(x))]
		floatEncoders[floats](p, buf)
		if _, err := w.Write(buf[:dtypeSizes[floats]*len(p)]); err != nil {
			return err
		}
	}
	return nil
}
