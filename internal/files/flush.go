package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// SyncFile flushes a file's content to the disk: a rename alone promises nothing about it.
func SyncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0) // Windows flushes files alone that are open for writing
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// SyncDir flushes a folder's names to the disk: until then a power cut may undo a rename, or take a new file away, though
// its content is flushed. A folder that the system cannot flush, or that one may write but not read, is no error.
func SyncDir(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	_ = f.Sync()
	return f.Close()
}

// SyncAll flushes every file and folder under dir.
func SyncAll(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			return SyncDir(path)
		}
		return SyncFile(path)
	})
}

// MakeAll is os.MkdirAll that flushes the names of the folders it makes.
func MakeAll(dir string, mode fs.FileMode) error {
	parent := filepath.Dir(dir)
	if _, err := os.Stat(dir); err == nil || parent == dir {
		return os.MkdirAll(dir, mode) // which has an error for what is no folder
	}
	if err := MakeAll(parent, mode); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, mode); err != nil {
		return err
	}
	return SyncDir(parent)
}
