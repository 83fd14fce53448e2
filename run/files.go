package run

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// replaceFile writes a whole file, at once or not at all, and names the file where it cannot.
func replaceFile(path string, data []byte) error {
	if err := atomicWrite(path, data); err != nil {
		return &fs.PathError{Op: "write", Path: path, Err: cause(err)} // not the temporary file's name
	}
	return syncDir(filepath.Dir(path))
}

// cause strips the operation and the path from an error of package os: the caller names the file that the user knows,
// not the temporary one.
func cause(err error) error {
	if e := (*fs.PathError)(nil); errors.As(err, &e) {
		return e.Err
	}
	if e := (*os.LinkError)(nil); errors.As(err, &e) {
		return e.Err
	}
	return err
}

// syncFile makes the system write a file out: a rename alone promises nothing about the content.
func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// syncDir makes the system write a folder's names out. Some file systems know no such thing, and refuse.
func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("folder %s cannot be flushed: %w", path, cause(err))
	}
	_ = f.Sync()
	return f.Close()
}
