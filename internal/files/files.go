// Package files reads the files of folders that others have made, such as model folders, and knows where install
// scripts put libraries.
package files

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/posttrain/posttrain/internal/hubcache"
)

// Match gives the files that a pattern such as train-*.parquet matches, in the order of their names, and the files in
// the cache of a data set of the hub. It gives the name itself where a file has this very name, and where nothing
// matches: opening it says what is wrong.
func Match(name string) []string {
	if paths, is, err := hubcache.Files(name); is && err == nil {
		return paths
	}
	if !strings.ContainsAny(name, "*?[") {
		return []string{name}
	}
	if _, err := os.Stat(name); err == nil {
		return []string{name}
	}
	found, err := filepath.Glob(name)
	if err != nil || len(found) == 0 {
		return []string{name}
	}
	return found
}

// Open opens a regular file. A folder, device, pipe or socket is an error: it has no end, or waits for ever. Errors do
// not repeat the name, except errors of fsys.
func Open(fsys fs.FS, name string) (fs.File, error) {
	info, err := fs.Stat(fsys, name) // first: to open a pipe is to wait for its other end
	if err == nil {
		err = check(info)
	}
	if err != nil {
		return nil, err
	}
	file, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	if info, err = file.Stat(); err == nil {
		err = check(info) // it may have been replaced
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

// Read reads a regular file of at most that many bytes.
func Read(fsys fs.FS, name string, most int64) ([]byte, error) {
	file, err := Open(fsys, name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return ReadAll(file, most)
}

// CheckNew refuses a folder that has files. A folder that does not exist is new.
func CheckNew(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("%s: %w; want a folder to make", dir, errors.Unwrap(err))
	case len(entries) > 0:
		return fmt.Errorf("%s: the folder is not empty; name another", dir)
	}
	return nil
}

// MakeFolder makes a folder with what write puts into it, whole or not at all, and flushed to the disk. There may be an
// empty one of its name.
func MakeFolder(path string, write func(dir string) error) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	parent := filepath.Dir(path)
	if err := MakeAll(parent, 0o777); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(parent, "."+filepath.Base(path)+"-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := cmp.Or(write(dir), os.Chmod(dir, 0o755), SyncAll(dir)); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return cmp.Or(os.Rename(dir, path), SyncDir(parent))
}

// CheckContained refuses a folder that has a link which leads out of it, or to nothing, and one that has a pipe, socket
// or device: what a program writes into such a folder may land elsewhere, and what it reads may never end.
func CheckContained(dir string) error {
	root, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, _ := filepath.Rel(root, path)
		if d.Type()&fs.ModeSymlink == 0 {
			err = checkMode(d.Type())
		} else if to, fault := filepath.EvalSymlinks(path); fault != nil || !isBelow(root, to) {
			err = fmt.Errorf("found a link that leads out of %s or to nothing, want the file or folder itself", dir)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", filepath.Join(dir, name), err)
		}
		return nil
	})
}

func isBelow(root, path string) bool {
	name, err := filepath.Rel(root, path)
	return err == nil && filepath.IsLocal(name)
}

// SHA256 is the hash of a regular file, in hexadecimal.
func SHA256(path string) (string, error) {
	info, err := os.Stat(path)
	if err == nil {
		err = check(info)
	}
	if err != nil {
		return "", err
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return hex.EncodeToString(h.Sum(nil)), err
}

// ReadAll reads at most that many bytes; more are an error.
func ReadAll(r io.Reader, most int64) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(text)) > most {
		return nil, fmt.Errorf("longer than %d MiB", most>>20)
	}
	return text, err
}

// Cause strips the operation and the paths from an error of package os. The caller names the file that the user knows.
func Cause(err error) error {
	if e := (*fs.PathError)(nil); errors.As(err, &e) {
		return e.Err
	}
	if e := (*os.LinkError)(nil); errors.As(err, &e) {
		return e.Err
	}
	return err
}

func check(info fs.FileInfo) error { return checkMode(info.Mode()) }

func checkMode(mode fs.FileMode) error {
	kind := "special file"
	switch {
	case mode.IsRegular():
		return nil
	case mode.IsDir():
		kind = "folder"
	case mode&fs.ModeNamedPipe != 0:
		kind = "pipe"
	case mode&fs.ModeSocket != 0:
		kind = "socket"
	case mode&fs.ModeDevice != 0:
		kind = "device"
	}
	return fmt.Errorf("found a %s, want a regular file", kind)
}
