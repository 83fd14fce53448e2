package run

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/files"
)

// Journal is a file of JSON lines that only grows. A process that is killed leaves every row that Add has returned for;
// a row that it was writing is cut off when the file is opened again.
type Journal[T any] struct {
	mu     sync.Mutex
	file   *os.File
	path   string
	broken error // of a write that may have left half a row, which must stay the last
}

// OpenJournal reads the rows that are there, and opens the file for more, for this process alone.
func OpenJournal[T any](path string) (*Journal[T], []T, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, Cause(err))
	}
	if err := Lock(file); err != nil {
		file.Close()
		return nil, nil, fmt.Errorf("%s cannot be locked: %w: wait for the other process to end, or name another "+
			"one", path, err)
	}
	rows, end, err := data.ReadJournal[T](path, file)
	if err == nil {
		err = file.Truncate(end)
	}
	if err == nil {
		_, err = file.Seek(end, io.SeekStart)
	}
	if err == nil {
		err = files.SyncDir(filepath.Dir(path))
	}
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return &Journal[T]{file: file, path: path}, rows, nil
}

// ReadJournal reads the rows of a journal that nobody writes; without a file it returns no rows.
func ReadJournal[T any](path string) ([]T, error) {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, Cause(err))
	}
	defer file.Close()
	rows, _, err := data.ReadJournal[T](path, file)
	return rows, err
}

// Path is the file's.
func (j *Journal[T]) Path() string { return j.path }

// Add writes a row in one piece.
func (j *Journal[T]) Add(row T) error {
	var line bytes.Buffer
	if err := data.WriteLine(&line, row); err != nil {
		return err
	}
	if line.Len() > data.MaxLine {
		return fmt.Errorf("%s: a row of %d MiB: want %d at most", filepath.Base(j.path), line.Len()>>20,
			data.MaxLine>>20)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.broken != nil {
		return j.broken
	}
	if _, err := j.file.Write(line.Bytes()); err != nil {
		j.broken = fmt.Errorf("%s: not written: %w", filepath.Base(j.path), Cause(err))
	}
	return j.broken
}

// Clear takes all rows away.
func (j *Journal[T]) Clear() error {
	_, err := j.file.Seek(0, io.SeekStart)
	if err := cmp.Or(err, j.file.Truncate(0)); err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(j.path), Cause(err))
	}
	return nil
}

// Sync makes the rows durable.
func (j *Journal[T]) Sync() error { return j.file.Sync() }

// Close makes the rows durable, and closes the file.
func (j *Journal[T]) Close() error {
	return errors.Join(j.file.Sync(), j.file.Close())
}
