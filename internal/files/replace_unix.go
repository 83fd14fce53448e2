//go:build !windows

package files

import (
	"io/fs"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// Pending is a file that is being written. CloseAtomicallyReplace puts it in its place, Cleanup removes what is left of
// one that was not.
type Pending = renameio.PendingFile

// NewPending begins a file that will lie at path. Until then it has a temporary name in the same folder.
func NewPending(path string, mode fs.FileMode) (*Pending, error) {
	return renameio.NewPendingFile(path, renameio.WithPermissions(mode), renameio.WithTempDir(filepath.Dir(path)))
}

// Replace makes data the content of the file at path: at once or not at all, and flushed to the disk.
func Replace(path string, data []byte, mode fs.FileMode) error {
	return renameio.WriteFile(path, data, mode, renameio.WithTempDir(filepath.Dir(path)))
}
