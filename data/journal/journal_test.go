package journal

import (
	"os"
	"path/filepath"
	"testing"
)

// TestHalfARowStaysLast: after a write that failed nothing is added, so that half a row can be cut off when the file is
// opened again.
func TestHalfARowStaysLast(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	path := filepath.Join(t.TempDir(), "rows.jsonl")
	j, _, err := Open[int](path)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	file := j.file
	j.file = full
	if err := j.Add(1); err == nil {
		t.Error("a full disk is no error")
	}
	j.file = file
	if err := j.Add(2); err == nil {
		t.Error("a row follows half a row")
	}
}
