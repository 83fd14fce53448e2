package run

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/posttrain/posttrain/internal/files"
)

// contents lists the files of a checkpoint. It is written last, so that a folder without it is unfinished.
type contents struct {
	Step  int         `json:"step"`
	Files []fileEntry `json:"files"`
}

type fileEntry struct {
	Name   string `json:"name"` // with slashes, relative to the checkpoint
	Size   int64  `json:"size"` // bytes
	SHA256 string `json:"sha256"`
}

// seal flushes every file under dir to the disk and lists them in manifest.json. It reads those that are not known by
// their paths.
func seal(dir string, step int, known map[string]fileEntry) error {
	if err := files.SyncAll(dir); err != nil {
		return err
	}
	m := contents{Step: step, Files: []fileEntry{}}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		e, ok := known[path]
		if e.Name = filepath.ToSlash(name); !ok {
			e, err = describe(dir, e.Name)
		}
		m.Files = append(m.Files, e)
		return err
	})
	if err != nil {
		return err
	}
	return writeJSON(filepath.Join(dir, manifestName), m)
}

// describe reads a file of a checkpoint; name is with slashes.
func describe(dir, name string) (fileEntry, error) {
	e := fileEntry{Name: name}
	f, err := os.Open(filepath.Join(dir, filepath.FromSlash(name)))
	if err != nil {
		return e, err
	}
	defer f.Close()
	h := sha256.New()
	e.Size, err = io.Copy(h, f)
	e.SHA256 = hex.EncodeToString(h.Sum(nil))
	return e, err
}

// verify compares the files of a checkpoint with its manifest. The error names the first file that differs.
func verify(dir string, step int) error {
	path := filepath.Join(dir, manifestName)
	var m contents
	if err := readJSON(path, "a manifest", &m); err != nil {
		return err
	}
	if m.Step != step {
		return fmt.Errorf("%s: step %d, but the folder says %d", path, m.Step, step)
	}
	for _, e := range m.Files {
		if err := e.verify(dir); err != nil {
			return err
		}
	}
	return nil
}

func (e fileEntry) verify(dir string) error {
	if !filepath.IsLocal(filepath.FromSlash(e.Name)) {
		return fmt.Errorf("%s: file name %q leads out of the folder", filepath.Join(dir, manifestName), e.Name)
	}
	path := filepath.Join(dir, filepath.FromSlash(e.Name))
	found, err := describe(dir, e.Name)
	switch {
	case err != nil:
		return fmt.Errorf("%s cannot be read: %w", path, Cause(err))
	case found.Size != e.Size:
		return fmt.Errorf("%s is damaged: %d bytes, want %d", path, found.Size, e.Size)
	case found.SHA256 != e.SHA256:
		return fmt.Errorf("%s is damaged: its SHA-256 begins with %.8s, want %.8s", path, found.SHA256, e.SHA256)
	}
	return nil
}
