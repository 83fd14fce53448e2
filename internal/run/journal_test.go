package run

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/internal/testkit/need"
)

// TestHalfARowStaysLast: after a write that failed nothing is added, so that half a row can be cut off when the file is
// opened again.
func TestHalfARowStaysLast(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rows.jsonl")
	j, _, err := OpenJournal[int](path)
	expect.OK(t, err)
	defer j.Close()
	file := j.file
	if j.file, err = os.Open(path); err != nil { // takes no rows, as a full disk does
		t.Fatal(err)
	}
	defer j.file.Close()
	if err := j.Add(1); err == nil {
		t.Error("a row that is not written is no error")
	}
	j.file.Close()
	j.file = file
	if err := j.Add(2); err == nil {
		t.Error("a row follows half a row")
	}
}

// TestFullDisk: a full disk is reported, and the file stays whole.
func TestFullDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rows.jsonl")
	j, _, err := OpenJournal[int](path)
	expect.OK(t, err)
	file := j.file
	if j.file, err = os.OpenFile("/dev/full", os.O_RDWR, 0); err != nil {
		need.Lack(t, "linux", "no /dev/full")
	}
	expect.Error(t, j.Add(1), "rows.jsonl: not written: no space left on device")
	expect.OK(t, errors.Join(j.file.Close(), file.Close()))
	if rows, err := ReadJournal[int](path); err != nil || len(rows) != 0 {
		t.Errorf("%v, %v", rows, err)
	}
}
