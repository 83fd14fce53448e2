//go:build !windows

package files

import (
	"io"
	"io/fs"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// Write makes what write writes the content of the file at path: at once or not at all, and flushed to the disk. Until
// then it has a temporary name in the same folder.
func Write(path string, mode fs.FileMode, write func(w io.Writer) error) error {
	folder := filepath.Dir(path)
	f, err := renameio.NewPendingFile(path, renameio.WithPermissions(mode), renameio.WithTempDir(folder))
	if err != nil {
		return err
	}
	defer f.Cleanup() //nolint:errcheck // nothing to do about a temporary file that cannot be removed
	if err := write(f); err != nil {
		return err
	}
	if err := f.CloseAtomicallyReplace(); err != nil {
		return err
	}
	return SyncDir(folder)
}

// Replace makes data the content of the file at path: at once or not at all, and flushed to the disk.
func Replace(path string, data []byte, mode fs.FileMode) error {
	folder := filepath.Dir(path)
	if err := renameio.WriteFile(path, data, mode, renameio.WithTempDir(folder)); err != nil {
		return err
	}
	return SyncDir(folder)
}
