package testkit

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// SameFolders compares all files of two folders, except what differs between equal runs: the process id in lock, the
// numbers of a clock ([run.OfClock]) in JSON, also as parts of a mean in a checkpoint's state.json, and the hash of
// that file in manifest.json.
func SameFolders(t testing.TB, a, b string) {
	t.Helper()
	names := files(t, a)
	if others := files(t, b); !slices.Equal(names, others) {
		t.Errorf("%s has the files %q, %s has %q", a, names, b, others)
		return
	}
	for _, name := range names {
		x, y := contentOf(t, a, name), contentOf(t, b, name)
		if !bytes.Equal(x, y) {
			at := 0
			for at < min(len(x), len(y)) && x[at] == y[at] {
				at++
			}
			t.Errorf("%s differs: …%.100q in %s, …%.100q in %s", name, x[max(0, at-50):], a, y[max(0, at-50):], b)
		}
	}
}

// files lists the files under a folder.
func files(t testing.TB, dir string) (names []string) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, path)
		}
		return err
	})
	expect.OK(t, err)
	return names
}

// contentOf is a file's content without what differs between equal runs.
func contentOf(t testing.TB, dir, name string) []byte {
	t.Helper()
	text := expect.Bytes(t, filepath.Join(dir, name))
	switch {
	case filepath.Base(name) == "lock":
		return nil
	case filepath.Ext(name) != ".json" && filepath.Ext(name) != ".jsonl":
		return text
	}
	var out bytes.Buffer
	for in := json.NewDecoder(bytes.NewReader(text)); in.More(); {
		var v any
		if err := in.Decode(&v); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		line := expect.Must(json.Marshal(withoutClock(v)))(t)
		out.Write(append(line, '\n'))
	}
	return out.Bytes()
}

// timed are files that have what a clock measured, or the hash of one that has it.
var timed = []string{"metrics.jsonl", "state.json", "manifest.json"}

// withoutClock removes from a JSON value what a clock measured, and what a manifest says of files that have it.
func withoutClock(v any) any {
	switch v := v.(type) {
	case map[string]any:
		if v["name"] == "state.json" {
			return nil
		}
		for key, value := range v {
			metric := strings.TrimPrefix(strings.TrimPrefix(key, "sum of "), "weight of ")
			if v[key] = withoutClock(value); run.OfClock(metric) || slices.Contains(timed, path.Base(key)) {
				delete(v, key)
			}
		}
	case []any:
		for i := range v {
			v[i] = withoutClock(v[i])
		}
	}
	return v
}
