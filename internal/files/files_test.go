//go:build unix

package files

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestRead: a regular file is read, also behind a link; all else is refused at once.
func TestRead(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	socket, err := net.Listen("unix", at("socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	for _, err := range []error{os.WriteFile(at("file"), []byte("text"), 0o666), os.Symlink("file", at("link")),
		os.Symlink("/dev/zero", at("device")), syscall.Mkfifo(at("pipe"), 0o666), os.Mkdir(at("folder"), 0o777),
		os.Symlink("loop", at("loop"))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"file": "", "link": "", "device": "found a device, want a regular file", "pipe": "found a pipe",
		"socket": "found a socket", "folder": "found a folder", "loop": "too many levels", "none": "no such file",
	} {
		text, err := Read(os.DirFS(dir), name, 4)
		if want == "" && (err != nil || string(text) != "text") {
			t.Errorf("%s: %q, %v", name, text, err)
		}
		if want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
	if _, err := Read(os.DirFS(dir), "file", 3); err == nil || err.Error() != "longer than 0 MiB" {
		t.Error(err)
	}
	if _, err := Open(os.DirFS(dir), "none"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	const sum = "982d9e3eb996f559e633f4d194def3761d909f5a3b647d1a851fead67c32c9d1" // printf text | sha256sum
	if got, err := SHA256(at("link")); err != nil || got != sum {
		t.Error(got, err)
	}
	if _, err := SHA256(at("pipe")); err == nil {
		t.Error("the hash of a pipe")
	}
}

// TestCheckContained: a link may stay in the folder, and nothing else but files and folders may be there.
func TestCheckContained(t *testing.T) {
	for name, c := range map[string]struct {
		make func(path string) error
		want string
	}{
		"file":    {func(path string) error { return os.WriteFile(path, nil, 0o666) }, ""},
		"inside":  {func(path string) error { return os.Symlink("../below/other", path) }, ""},
		"outside": {func(path string) error { return os.Symlink("../../secret", path) }, "leads out of"},
		"root":    {func(path string) error { return os.Symlink("/", path) }, "leads out of"},
		"beside":  {func(path string) error { return os.Symlink("../../run-2", path) }, "leads out of"},
		"nothing": {func(path string) error { return os.Symlink("none", path) }, "or to nothing"},
		"pipe":    {func(path string) error { return syscall.Mkfifo(path, 0o666) }, "found a pipe"},
	} {
		dir := filepath.Join(t.TempDir(), "run")
		path := filepath.Join(dir, "below", name)
		for _, err := range []error{os.MkdirAll(filepath.Dir(path), 0o777), os.Mkdir(dir+"-2", 0o777),
			os.WriteFile(filepath.Join(dir, "below", "other"), nil, 0o666),
			os.WriteFile(filepath.Join(dir, "..", "secret"), nil, 0o666), c.make(path), os.Symlink(dir, dir+"-3")} {
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, dir := range []string{dir, dir + "-3"} { // the folder's own name may be a link
			path := filepath.Join(dir, "below", name)
			err := CheckContained(dir)
			if c.want == "" && err != nil || c.want != "" && (err == nil ||
				!strings.HasPrefix(err.Error(), path+": ") || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%s: %v, want %q", path, err, c.want)
			}
		}
	}
}

// TestMakeAll makes folders, and refuses a file in their place.
func TestMakeAll(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("file", nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]bool{"a/b/c": true, "a": true, ".": true, "/": true, "d/": true, "file": false,
		"file/a": false} {
		if err := MakeAll(dir, 0o777); (err == nil) != want {
			t.Errorf("%s: %v", dir, err)
		}
	}
	if info, err := os.Stat("a/b/c"); err != nil || !info.IsDir() {
		t.Error(err)
	}
}

// TestMatch: a pattern means its files in order, a file's own name goes before what it matches as a pattern.
func TestMatch(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range []string{"b.txt", "a.txt", "x[1].txt", "x1.txt"} {
		if err := os.WriteFile(name, nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{"?.txt": "a.txt b.txt", "a.txt": "a.txt", "x[1].txt": "x[1].txt",
		"x[12].txt": "x1.txt", "*.none": "*.none", "[": "[", "none": "none"} {
		if got := strings.Join(Match(name), " "); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// TestReplace: a file has its new content and mode, a failure leaves the old one and nothing else.
func TestReplace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	for _, text := range []string{"one", "two"} {
		if err := Replace(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("%q, %v: want %q", got, err, text)
		}
	}
	if err := Replace(filepath.Join(dir, "none", "a"), nil, 0o600); err == nil {
		t.Error("a file in a folder that is not there")
	}
	stop := errors.New("stopped")
	err := Write(path, 0o644, func(w io.Writer) error {
		_, err := w.Write([]byte("half"))
		return cmp.Or(err, stop)
	})
	if text, _ := os.ReadFile(path); err != stop || string(text) != "two" {
		t.Errorf("%v, %q: want the old content", err, text)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v: want the file alone", entries, err)
	}
}
