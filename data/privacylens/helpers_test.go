package privacylens

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// wantError checks that an error is one line that holds every one of the parts.
var wantError = expect.Error

func oneLine(s string) string { return strings.ReplaceAll(s, "\n", " ") }

// realData is the path of a real data file, or skips the test if the file is missing.
func realData(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv("POSTTRAIN_DATA_DIR")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared", "data")
	}
	path := filepath.Join(dir, filepath.FromSlash(name))
	if _, err := os.Stat(path); err != nil {
		t.Skipf("no %s: set POSTTRAIN_DATA_DIR to the folder with the real data", path)
	}
	return path
}
