package testkit

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
)

var update = flag.Bool("update", false, "write testdata.sha256")

// TestFixtures: no file under a folder testdata is changed, lost or added unseen. testdata.sha256 has sha256sum's form and
// paths from the repository's root.
func TestFixtures(t *testing.T) {
	const sums, advice = "testdata.sha256", "go test ./internal/testkit -run TestFixtures -update"
	now := hashFixtures(t, os.DirFS("../.."))
	if *update {
		var lines strings.Builder
		for _, path := range slices.Sorted(maps.Keys(now)) {
			fmt.Fprintf(&lines, "%s  %s\n", now[path], path)
		}
		expect.Write(t, sums, lines.String())
	}
	was := map[string]string{}
	for line := range strings.Lines(string(contentOf(t, ".", sums))) {
		sum, path, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		was[path] = sum
	}
	paths := slices.AppendSeq(slices.Collect(maps.Keys(was)), maps.Keys(now))
	slices.Sort(paths)
	for _, path := range slices.Compact(paths) {
		switch {
		case now[path] == "":
			t.Errorf("%s is missing: bring it back, or run %s", path, advice)
		case was[path] == "":
			t.Errorf("%s is new: run %s", path, advice)
		case now[path] != was[path]:
			t.Errorf("%s is changed: bring it back, or run %s", path, advice)
		}
	}
}

// hashFixtures gives the SHA-256 of all files under folders testdata, by path. It passes over folders that git ignores.
func hashFixtures(t *testing.T, root fs.FS) map[string]string {
	t.Helper()
	ignore := expect.Must(fs.ReadFile(root, ".gitignore"))(t)
	ignored, sums := strings.Fields(string(ignore)), map[string]string{}
	err := fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && (name == ".git" || name == "node_modules" || slices.Contains(ignored, name+"/") ||
			slices.Contains(ignored, "/"+path+"/")):
			return fs.SkipDir
		case d.IsDir() || !strings.Contains("/"+path, "/testdata/"):
			return nil
		}
		content, err := fs.ReadFile(root, path)
		sums[path] = fmt.Sprintf("%x", sha256.Sum256(content))
		return err
	})
	expect.OK(t, err)
	return sums
}
