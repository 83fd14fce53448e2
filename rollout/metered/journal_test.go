package metered

import (
	"os"
	"path/filepath"
	"testing"
)

// TestHalfARowStaysLast: after a write that failed nothing is added, so that half a row can be cut off when the file is
// opened again.
func TestHalfARowStaysLast(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rows.jsonl")
	j, _, err := OpenJournal[int](path)
	if err != nil {
		t.Fatal(err)
	}
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
