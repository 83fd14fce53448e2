package model

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"io"

	"github.com/posttrain/posttrain/internal/files"
)

// Writer writes safetensors files.
type Writer struct {
	// Wrote gets the SHA-256 of each safetensors file, computed while it was written; may be nil.
	Wrote func(path string, size int64, sum []byte)
}

// write writes a file atomically. floats is its dtype for Floats tensors.
func (w Writer) write(path string, tensors []Tensor, floats string, meta map[string]string) error {
	to, sum := &counter{}, sha256.New()
	err := files.Write(path, 0o644, func(f io.Writer) error {
		if to.Writer = f; w.Wrote != nil {
			to.Writer = io.MultiWriter(f, sum)
		}
		buffered := bufio.NewWriterSize(to, 1<<20)
		if err := encodeTensors(buffered, tensors, floats, meta); err != nil {
			return err
		}
		return buffered.Flush()
	})
	if err != nil {
		return fmt.Errorf("%s: %w", path, files.Cause(err))
	}
	if w.Wrote != nil {
		w.Wrote(path, to.bytes, sum.Sum(nil))
	}
	return nil
}

// counter counts the bytes that are written.
type counter struct {
	io.Writer
	bytes int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	c.bytes += int64(n)
	return n, err
}
