package gguf

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/posttrain/posttrain/internal/files"
)

// Source is a tensor to write. Read gives its numbers, row-major, once; they may be freed after that.
type Source struct {
	Name  string
	Shape []int // a matrix is [rows, columns]
	Type  Type
	Read  func() ([]float32, error)
}

const alignment = 32

// Write writes a file of version 3: path holds either the old content or all of the new. wrote gets the number of
// tensors written after each; its error ends the writing.
func Write(path string, meta []Entry, tensors []Source, wrote func(n int) error) error {
	err := files.Write(path, 0o644, func(f io.Writer) error {
		w := &counter{Writer: bufio.NewWriterSize(f, 1<<20)}
		if err := writeAll(w, meta, tensors, wrote); err != nil {
			return err
		}
		return w.Flush()
	})
	if err != nil {
		return fmt.Errorf("%s: %w", path, files.Cause(err))
	}
	return nil
}

// counter counts the bytes that are written.
type counter struct {
	*bufio.Writer
	at int64
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.Writer.Write(b)
	c.at += int64(n)
	return n, err
}

func (c *counter) WriteString(s string) (int, error) { return c.Write([]byte(s)) }

// align fills up to the next multiple of the alignment.
func (c *counter) align() error {
	_, err := c.Write(make([]byte, (alignment-c.at%alignment)%alignment))
	return err
}

func writeAll(w *counter, meta []Entry, tensors []Source, wrote func(n int) error) error {
	if err := writeHead(w, meta, tensors); err != nil {
		return err
	}
	for i, t := range tensors {
		if err := w.align(); err != nil {
			return err
		}
		x, err := t.Read()
		if err == nil {
			err = t.write(w, x)
		}
		if err != nil {
			return fmt.Errorf("tensor %s: %w", t.Name, err)
		}
		if err := wrote(i + 1); err != nil {
			return err
		}
	}
	return w.align()
}

// writeHead writes all but the tensors' numbers.
func writeHead(w io.Writer, meta []Entry, tensors []Source) error {
	head := binary.LittleEndian.AppendUint32([]byte(magic), 3)
	head = binary.LittleEndian.AppendUint64(head, uint64(len(tensors)))
	if _, err := w.Write(binary.LittleEndian.AppendUint64(head, uint64(len(meta)))); err != nil {
		return err
	}
	for _, e := range meta {
		if err := writeText(w, e.Key); err != nil {
			return err
		}
		if err := writeValue(w, e.Value); err != nil {
			return fmt.Errorf("key %s: %w", e.Key, err)
		}
	}
	at := int64(0)
	for _, t := range tensors {
		if err := t.check(); err != nil {
			return fmt.Errorf("tensor %s: %w", t.Name, err)
		}
		if err := t.writeLine(w, at); err != nil {
			return err
		}
		line := Tensor{Shape: t.Shape, Type: t.Type}
		at = (at + line.bytes() + alignment - 1) / alignment * alignment
	}
	return nil
}

func (t *Source) check() error {
	c, dims := codecs[t.Type], len(t.Shape)
	switch {
	case c.encode == nil:
		return fmt.Errorf("found %s, which is not written: want %s", t.Type, Names(Writable, ", "))
	case dims < 1 || dims > maxDims || slices.Min(t.Shape) < 1:
		return fmt.Errorf("found shape %v, want 1 to %d dimensions of 1 or more", t.Shape, maxDims)
	case t.Shape[dims-1]%c.block != 0:
		return fmt.Errorf("found rows of %d numbers, want a multiple of %d for %s", t.Shape[dims-1], c.block, t.Type)
	}
	return nil
}

// writeLine writes the tensor's line; its numbers begin at a byte behind the metadata.
func (t *Source) writeLine(w io.Writer, at int64) error {
	if err := writeText(w, t.Name); err != nil {
		return err
	}
	line := binary.LittleEndian.AppendUint32(nil, uint32(len(t.Shape)))
	for _, d := range slices.Backward(t.Shape) {
		line = binary.LittleEndian.AppendUint64(line, uint64(d))
	}
	line = binary.LittleEndian.AppendUint32(line, uint32(t.Type))
	_, err := w.Write(binary.LittleEndian.AppendUint64(line, uint64(at)))
	return err
}

// write encodes the tensor's numbers, all of which must be finite in its type.
func (t *Source) write(w io.Writer, x []float32) error {
	c, line := codecs[t.Type], Tensor{Shape: t.Shape}
	if len(x) != line.Size() {
		return fmt.Errorf("found %d numbers, want %d for shape %v", len(x), line.Size(), t.Shape)
	}
	most := c.most
	if most == 0 {
		most = math.MaxFloat32
	}
	buffer := make([]byte, pieceSize/c.block*c.bytes)
	notFinite := func(v float32) bool { return !(math.Abs(float64(v)) <= most) }
	if i := slices.IndexFunc(x, notFinite); i >= 0 {
		return fmt.Errorf("found %v as number %d, which is not finite in %s", x[i], i, t.Type)
	}
	for piece := range slices.Chunk(x, pieceSize) {
		b := buffer[:len(piece)/c.block*c.bytes]
		for i := 0; i < len(piece); i += c.block {
			c.encode(piece[i:i+c.block], b[i/c.block*c.bytes:])
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	return nil
}
