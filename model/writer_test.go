package model

import (
	"bytes"
	"crypto/sha256"
	"os"
	"path/filepath"
	"testing"
)

// TestWrote: the size and the SHA-256 that are computed while a file is written are the file's.
func TestWrote(t *testing.T) {
	m, dir := tiny(t, "llama"), t.TempDir()
	written := 0
	w := Writer{Wrote: func(path string, size int64, sum []byte) {
		written++
		b, err := os.ReadFile(path)
		if want := sha256.Sum256(b); err != nil || int(size) != len(b) || !bytes.Equal(sum, want[:]) ||
			path != filepath.Join(dir, weightsFile) {
			t.Errorf("%s: %v, %d bytes %x, want %d bytes %x", path, err, size, sum, len(b), want)
		}
	}}
	if err := w.Save(m, dir, "bfloat16"); err != nil || written != 1 {
		t.Fatal(err, written)
	}
}
