package run

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// TestLostFolder: whatever writes into a folder that was taken away from its run says so, and makes nothing new.
func TestLostFolder(t *testing.T) {
	for _, c := range []struct {
		name, says string
		take       func(dir string) error
	}{
		{"deleted", "was deleted, renamed or replaced", os.RemoveAll},
		{"renamed", "was deleted, renamed or replaced", func(dir string) error { return os.Rename(dir, dir+"-old") }},
		{"replaced", "was deleted, renamed or replaced", func(dir string) error {
			return errors.Join(os.Rename(dir, dir+"-old"), os.CopyFS(dir, os.DirFS(dir+"-old")))
		}},
		{"unlocked", "lost its file lock", func(dir string) error { return os.Remove(filepath.Join(dir, lockName)) }},
		{"locked anew", "lost its file lock", func(dir string) error {
			lock := filepath.Join(dir, lockName)
			return errors.Join(os.Rename(lock, lock+"2"), os.WriteFile(lock, []byte("1\n"), 0o666))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFolder(t)
			expect.OK(t, f.Held())
			expect.OK(t, c.take(f.Dir))
			before, _ := filepath.Glob(filepath.Join(f.Dir, "*"))
			for i, err := range writeEverything(f) {
				wantError(t, err, "run folder "+f.Dir, c.says)
				if !errors.Is(err, ErrLost) || strings.Contains(err.Error(), "\n") {
					t.Errorf("write %d: %v: want an ErrLost of one line", i, err)
				}
			}
			if after, _ := filepath.Glob(filepath.Join(f.Dir, "*")); len(after) != len(before) {
				t.Errorf("the folder holds %q, %q before", after, before)
			}
		})
	}
}

// TestLostWhileACheckpointIsWritten: no folder is made again in the old place.
func TestLostWhileACheckpointIsWritten(t *testing.T) {
	f := newFolder(t)
	_, err := f.WriteCheckpoint(1, func(dir string) error {
		return errors.Join(os.RemoveAll(f.Dir), os.WriteFile(filepath.Join(dir, "weights.bin"), nil, 0o666))
	})
	if _, there := os.Stat(f.Dir); !errors.Is(err, ErrLost) || there == nil {
		t.Errorf("%v: want an ErrLost, and no folder %s", err, f.Dir)
	}
}

// writeEverything calls all that writes into a folder.
func writeEverything(f *Folder) []error {
	nothing := func(string) error { return nil }
	_, checkpoint := f.WriteCheckpoint(1, nothing)
	return []error{checkpoint, f.WriteResult(ModelName, nothing), f.WriteConfig(nil), f.WriteSummary(""),
		f.WriteSummaryJSON(1), f.Log(Record{}), f.LogSamples(1), f.WriteLines(TestAfterName), f.WriteCurves("")}
}

// TestLockSurvivesItsFile: another process does not get into the folder of a run because its file lock was removed.
func TestLockSurvivesItsFile(t *testing.T) {
	f := newFolder(t)
	expect.OK(t, os.Remove(f.Path(lockName)))
	_, err := Open(f.Dir)
	wantError(t, err, f.Dir, "in use by another process")
}

// TestCreateAfterAKillBeforeTheConfig: a process that dies while it writes the config leaves a folder that counts as
// empty; what only looks like it does not.
func TestCreateAfterAKillBeforeTheConfig(t *testing.T) {
	dir := t.TempDir()
	expect.Write(t, filepath.Join(dir, ".config.yaml4711"), "command: ma")
	expect.Write(t, filepath.Join(dir, lockName), "4711\n")
	if err := CheckNew(dir); err != nil {
		t.Error(err)
	}
	f := expect.Must(Create(dir, "mappo"))(t)
	defer f.Close()
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	for _, name := range []string{".config.yaml", ".config.yaml1x", "config.yaml7", ".metrics.jsonl7"} {
		dir := t.TempDir()
		expect.Write(t, filepath.Join(dir, name), "")
		wantError(t, CheckNew(dir), dir, name)
	}
}
