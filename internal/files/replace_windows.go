package files

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Write makes what write writes the content of the file at path. Until then it has a temporary name in the same folder.
// renameio does not support Windows, whose rename promises less: a loss of power may undo it.
func Write(path string, mode fs.FileMode, write func(w io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path))
	if err != nil {
		return err
	}
	inPlace := false
	defer func() {
		if !inPlace {
			_ = f.Close() // it may be closed already
			_ = os.Remove(f.Name())
		}
	}()
	if err := f.Chmod(mode); err != nil {
		return err
	}
	if err := write(f); err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	err = os.Rename(f.Name(), path)
	inPlace = err == nil
	return err
}

// Replace makes data the content of the file at path.
func Replace(path string, data []byte, mode fs.FileMode) error {
	return Write(path, mode, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}
