//go:build unix

package data

import (
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A file gets the permissions that the user's umask leaves it.
func TestUmask(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.jsonl")
	defer syscall.Umask(syscall.Umask(0))
	for umask, want := range map[int]os.FileMode{0o077: 0o600, 0o022: 0o644, 0o002: 0o664} {
		syscall.Umask(umask)
		if err := WriteFile(path, func(w io.Writer) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode() != want {
			t.Errorf("umask %o: %v, want %v (%v)", umask, info.Mode(), want, err)
		}
	}
}
