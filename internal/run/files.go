package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/posttrain/posttrain/internal/config/fault"
	"github.com/posttrain/posttrain/internal/files"
)

// replaceFile writes a whole file, at once or not at all, and flushes it. Its error names the file.
func replaceFile(path string, data []byte) error {
	if err := files.Replace(path, data, 0o666); err != nil {
		return &fs.PathError{Op: "write", Path: path, Err: Cause(err)} // without the temporary name
	}
	return nil
}

// Cause is [files.Cause].
func Cause(err error) error { return files.Cause(err) }

// syncDir flushes a folder's names to the disk.
func syncDir(path string) error {
	if err := files.SyncDir(path); err != nil {
		return fmt.Errorf("folder %s cannot be flushed: %w", path, Cause(err))
	}
	return nil
}

// readJSON reads a file into v; what says what the file should be, for the message.
func readJSON(path, what string, v any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("%s cannot be read: %w", path, Cause(err))
	}
	if err := json.Unmarshal(text, v); err != nil {
		return fmt.Errorf("%s: not %s: %s", path, what, fault.OneLine(err.Error()))
	}
	return nil
}

// writeJSON writes a file for people to read too.
func writeJSON(path string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return replaceFile(path, append(text, '\n'))
}

// entriesOf lists a folder. A missing one has no entries.
func entriesOf(dir string) ([]fs.DirEntry, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("folder %s cannot be read: %w", dir, Cause(err))
	}
	return entries, nil
}
