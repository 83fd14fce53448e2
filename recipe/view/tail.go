package view

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/posttrain/posttrain/internal/run"
)

// tail reads a file that grows, each line once. Half a last line waits for its end.
type tail struct {
	path  string
	info  fs.FileInfo // of the file when it was read; nil: there was none
	at    int64       // the place of the first byte that was not read
	lines int         // before it
	last  []byte      // the line before it: where another one is there, the file was written anew
}

// read calls line with each line that it has not read yet, and its place. If the file is another one than before, or
// was cut, as by a run that resumes, it calls begin first and reads from the start.
func (t *tail) read(begin func(), line func(at int64, text []byte) error) error {
	f, err := os.Open(t.path)
	if errors.Is(err, fs.ErrNotExist) {
		if t.info != nil {
			begin()
		}
		*t = tail{path: t.path}
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s cannot be read: %w", t.path, run.Cause(err))
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("%s cannot be read: %w", t.path, run.Cause(err))
	}
	if t.info != nil && !t.continues(f, info) {
		begin()
		*t = tail{path: t.path}
	}
	t.info = info
	return t.follow(io.NewSectionReader(f, t.at, info.Size()-t.at), line)
}

// continues says whether the file has what was read of it.
func (t *tail) continues(f *os.File, info fs.FileInfo) bool {
	if !os.SameFile(t.info, info) || info.Size() < t.at {
		return false
	}
	again := make([]byte, len(t.last))
	_, err := f.ReadAt(again, t.at-int64(len(again)))
	return (err == nil || err == io.EOF) && bytes.Equal(again, t.last)
}

func (t *tail) follow(rest io.Reader, line func(at int64, text []byte) error) error {
	for r := bufio.NewReaderSize(rest, 1<<16); ; {
		text, err := r.ReadBytes('\n')
		if err == io.EOF {
			return nil
		}
		if err == nil {
			err = line(t.at, text)
		}
		if err != nil {
			return fmt.Errorf("%s:%d: %w", t.path, t.lines+1, err)
		}
		t.at, t.lines, t.last = t.at+int64(len(text)), t.lines+1, text
	}
}

// readAt reads a line of the file.
func (t *tail) readAt(at, length int64) ([]byte, error) {
	f, err := os.Open(t.path)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", t.path, run.Cause(err))
	}
	defer f.Close()
	text := make([]byte, length)
	if _, err := f.ReadAt(text, at); err != nil && err != io.EOF {
		return nil, fmt.Errorf("%s cannot be read: %w", t.path, run.Cause(err))
	}
	return text, nil
}
