package run

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// replaceFile writes a whole file, at once or not at all. Its error names the file.
func replaceFile(path string, data []byte) error {
	if err := atomicWrite(path, data); err != nil {
		return &fs.PathError{Op: "write", Path: path, Err: cause(err)} // without the temporary name
	}
	return syncDir(filepath.Dir(path))
}

// cause strips the operation and the path from an error of package os. The caller names the file that the user knows.
func cause(err error) error {
	if e := (*fs.PathError)(nil); errors.As(err, &e) {
		return e.Err
	}
	if e := (*os.LinkError)(nil); errors.As(err, &e) {
		return e.Err
	}
	return err
}

// syncFile flushes a file to the disk: a rename alone promises nothing about the content.
func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// syncDir flushes a folder's names to the disk. Some file systems cannot, which is no error.
func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("folder %s cannot be flushed: %w", path, cause(err))
	}
	_ = f.Sync()
	return f.Close()
}
