package expect

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// Write writes a file, and makes its folder if needed.
func Write[T ~string | ~[]byte](t testing.TB, path string, content T) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o777)
	if err == nil {
		err = os.WriteFile(path, []byte(content), 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// File writes a file into a new folder and gives its path.
func File[T ~string | ~[]byte](t testing.TB, name string, content T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	Write(t, path, content)
	return path
}

// Bytes is the content of a file.
func Bytes(t testing.TB, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// Read is the text of a file.
func Read(t testing.TB, path string) string {
	t.Helper()
	return string(Bytes(t, path))
}

// Decode reads a file of JSON.
func Decode(t testing.TB, path string, into any) {
	t.Helper()
	if err := json.Unmarshal(Bytes(t, path), into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}
