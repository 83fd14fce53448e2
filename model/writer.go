package model

import (
	"bufio"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/posttrain/posttrain/internal/files"
)

// maxShard is the size of transformers' files, too.
const maxShard = 5_000_000_000

// Writer writes safetensors files. Tensors that do not fit into one file go into shards with an index, as transformers
// writes them: NAME-00001-of-00002.safetensors, … and NAME.safetensors.index.json.
type Writer struct {
	MaxBytes int64 // of the tensors in a file; a larger tensor has a file of its own; 0: 5 GB

	// Wrote gets the SHA-256 of each safetensors file, computed while it was written; may be nil.
	Wrote func(path string, size int64, sum []byte)
}

// write writes tensors to path, or to shards of this name. floats is the files' dtype for Floats tensors.
func (w Writer) write(path string, tensors []Tensor, floats string, meta map[string]string) error {
	parts, index := w.split(tensors, floats), tensorIndex{Files: map[string]string{}}
	if len(parts) < 2 {
		return w.writeFile(path, tensors, floats, meta)
	}
	for i, part := range parts {
		end := fmt.Sprintf("-%05d-of-%05d.safetensors", i+1, len(parts))
		file := strings.TrimSuffix(path, ".safetensors") + end
		if err := w.writeFile(file, part, floats, meta); err != nil {
			return err
		}
		for _, t := range part {
			index.Files[t.Name] = filepath.Base(file)
			index.Metadata.Size += t.bytes(floats)
		}
	}
	return index.write(path)
}

// split cuts tensors into those of each file.
func (w Writer) split(tensors []Tensor, floats string) (parts [][]Tensor) {
	most, first, size := w.MaxBytes, 0, int64(0)
	if most == 0 {
		most = maxShard
	}
	for i, t := range tensors {
		if n := t.bytes(floats); i > first && size+n > most {
			parts = append(parts, tensors[first:i])
			first, size = i, n
		} else {
			size += n
		}
	}
	return append(parts, tensors[first:])
}

// bytes is a tensor's size in a file.
func (t *Tensor) bytes(floats string) int64 {
	if t.Ints != nil {
		floats = "I64"
	}
	return int64(t.elements() * dtypeSizes[floats])
}

// tensorIndex says which shard has a tensor.
type tensorIndex struct {
	Metadata struct {
		Size int64 `json:"total_size"` // bytes of all tensors
	} `json:"metadata"`
	Files map[string]string `json:"weight_map"`
}

// write writes the index, and removes a single file of the same name, which readers prefer.
func (x tensorIndex) write(path string) error {
	text, err := json.MarshalIndent(x, "", "  ")
	if err == nil {
		err = files.Replace(path+indexEnd, append(text, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path+indexEnd, files.Cause(err))
	}
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("%s: %w", path, files.Cause(err))
	}
	return nil
}

// writeFile writes one file atomically.
func (w Writer) writeFile(path string, tensors []Tensor, floats string, meta map[string]string) error {
	f, err := files.NewPending(path, 0o644)
	if err != nil {
		return fmt.Errorf("%s: %w", path, files.Cause(err))
	}
	defer f.Cleanup() //nolint:errcheck // nothing to do about a temporary file that cannot be removed
	to := &counter{Writer: f}
	sum := sha256.New()
	if w.Wrote != nil {
		to.Writer = io.MultiWriter(f, sum)
	}
	buffered := bufio.NewWriterSize(to, 1<<20)
	if err = encodeTensors(buffered, tensors, floats, meta); err == nil {
		err = buffered.Flush()
	}
	if err == nil {
		err = f.CloseAtomicallyReplace()
	}
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
