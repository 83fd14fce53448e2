package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Pending is a file that is being written. renameio does not support Windows, whose rename promises less: a loss of
// power may undo it.
type Pending struct {
	*os.File
	path string
	done bool
}

// NewPending begins a file that will lie at path. Until then it has a temporary name in the same folder.
func NewPending(path string, mode fs.FileMode) (*Pending, error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path))
	if err != nil {
		return nil, err
	}
	p := &Pending{File: f, path: path}
	if err := f.Chmod(mode); err != nil {
		return nil, errors.Join(err, p.Cleanup())
	}
	return p, nil
}

// CloseAtomicallyReplace flushes the file and puts it in its place.
func (p *Pending) CloseAtomicallyReplace() error {
	if err := errors.Join(p.Sync(), p.Close()); err != nil {
		return err
	}
	err := os.Rename(p.Name(), p.path)
	p.done = err == nil
	return err
}

// Cleanup removes the file unless it is in its place.
func (p *Pending) Cleanup() error {
	if p.done {
		return nil
	}
	p.done = true
	_ = p.Close() // it may be closed already
	return os.Remove(p.Name())
}

// Replace makes data the content of the file at path.
func Replace(path string, data []byte, mode fs.FileMode) error {
	p, err := NewPending(path, mode)
	if err != nil {
		return err
	}
	defer p.Cleanup()
	if _, err := p.Write(data); err != nil {
		return err
	}
	return p.CloseAtomicallyReplace()
}
