//go:build !windows

package files

import (
	"io/fs"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// Pending is a file that is being written. CloseAtomicallyReplace puts it in its place, Cleanup removes what is left of
// one that was not.
type Pending struct {
	*renameio.PendingFile
	folder string
}

// NewPending begins a file that will lie at path. Until then it has a temporary name in the same folder.
func NewPending(path string, mode fs.FileMode) (*Pending, error) {
	folder := filepath.Dir(path)
	f, err := renameio.NewPendingFile(path, renameio.WithPermissions(mode), renameio.WithTempDir(folder))
	return &Pending{f, folder}, err
}

// CloseAtomicallyReplace flushes the file, puts it in its place and flushes its name.
func (p *Pending) CloseAtomicallyReplace() error {
	if err := p.PendingFile.CloseAtomicallyReplace(); err != nil {
		return err
	}
	return SyncDir(p.folder)
}

// Replace makes data the content of the file at path: at once or not at all, and flushed to the disk.
func Replace(path string, data []byte, mode fs.FileMode) error {
	folder := filepath.Dir(path)
	if err := renameio.WriteFile(path, data, mode, renameio.WithTempDir(folder)); err != nil {
		return err
	}
	return SyncDir(folder)
}
