package data

import (
	"path/filepath"
	"regexp"
	"testing"
)

// TestTemporaryName: package run removes temporary files with such names, and no others.
func TestTemporaryName(t *testing.T) {
	for range 20 {
		file, err := createBeside(filepath.Join(t.TempDir(), "summary.json"))
		if err != nil {
			t.Fatal(err)
		}
		file.Close()
		if name := filepath.Base(file.Name()); !regexp.MustCompile(`^\.summary\.json-\d+$`).MatchString(name) {
			t.Errorf("temporary file %s, want .summary.json-NUMBER", name)
		}
	}
}
