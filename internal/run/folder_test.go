package run

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// newFolder is a run folder with a config, closed at the end of the test.
func newFolder(t *testing.T) *Folder {
	t.Helper()
	f := expect.Must(Create(filepath.Join(t.TempDir(), "run"), "mappo"))(t)
	t.Cleanup(func() { f.Close() })
	expect.OK(t, f.WriteConfig([]byte("loss: dpo\nbeta: 0.1\n")))
	return f
}

// reopen closes the folder and opens it again, as another process would.
func reopen(t *testing.T, f *Folder) *Folder {
	t.Helper()
	expect.OK(t, f.Close())
	again := expect.Must(Open(f.Dir))(t)
	t.Cleanup(func() { again.Close() })
	return again
}

var wantError = expect.Error

func TestCreateNamesByCommandAndTime(t *testing.T) {
	parent := filepath.Join(t.TempDir(), "runs")
	now := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	for _, want := range []string{"mappo-20260102-150405", "mappo-20260102-150405-2", "mappo-20260102-150405-3"} {
		dir, err := freshDir(parent, "mappo", now)
		if err != nil || filepath.Base(dir) != want {
			t.Fatalf("freshDir = %s, %v, want %s", dir, err, want)
		}
	}
}

func TestCreateDefaultDir(t *testing.T) {
	t.Chdir(t.TempDir())
	f := expect.Must(Create("", "sft"))(t)
	defer f.Close()
	if !strings.HasPrefix(f.Dir, filepath.Join("runs", "sft-2")) {
		t.Errorf("folder %s, want runs/sft-<time>", f.Dir)
	}
}

func TestCreateRefusesAFolderInUse(t *testing.T) {
	f := newFolder(t)
	f.Close()
	_, err := Create(f.Dir, "mappo")
	wantError(t, err, f.Dir, "--out", "--resume "+f.Dir)

	other := t.TempDir()
	expect.Write(t, filepath.Join(other, "thesis.tex"), "")
	_, err = Create(other, "mappo")
	wantError(t, err, other, "thesis.tex", "--out")
	if strings.Contains(err.Error(), "--resume") {
		t.Errorf("%q: no run can be resumed there", err)
	}
	if _, err := os.Stat(filepath.Join(other, lockName)); err == nil {
		t.Error("a folder with other files got a lock")
	}
}

// TestCheckNew returns the error that Create would return, and makes nothing.
func TestCheckNew(t *testing.T) {
	used, free := newFolder(t), filepath.Join(t.TempDir(), "a", "b")
	wantError(t, CheckNew(used.Dir), used.Dir, "--resume "+used.Dir)
	for _, dir := range []string{"", free, t.TempDir()} {
		if err := CheckNew(dir); err != nil {
			t.Errorf("%q: %v", dir, err)
		}
	}
	if _, err := os.Stat(free); err == nil {
		t.Errorf("%s was made", free)
	}
}

func TestCreateTakesAnEmptyFolder(t *testing.T) {
	f := expect.Must(Create(t.TempDir(), "mappo"))(t)
	f.Close()
	// A process that died before it wrote its config leaves the lock, and a sweep the configs of its runs.
	for _, name := range []string{"reward.restricted_weight=0.5,seed=1.yaml", ".seed=2.yaml77"} {
		expect.Write(t, f.Path(name), "half")
	}
	f = expect.Must(Create(f.Dir, "mappo"))(t)
	f.Close()
}

// TestLinksOutOfARun: nothing is written through a link in a run folder from elsewhere, not even the lock.
func TestLinksOutOfARun(t *testing.T) {
	for _, name := range []string{lockName, metricsName, samplesName, configName, checkpointsName, "tensorboard",
		"checkpoints/step-00000001", ModelName} {
		f := newFolder(t)
		f.Close()
		secret, outside := t.TempDir(), filepath.Join(t.TempDir(), "file")
		expect.Write(t, filepath.Join(secret, "step-00000001", "a"), "precious")
		expect.Write(t, outside, "precious")
		for _, target := range []string{secret, outside, outside + "-new"} {
			expect.OK(t, errors.Join(os.RemoveAll(f.Path(name)), os.MkdirAll(filepath.Dir(f.Path(name)), 0o777),
				os.Symlink(target, f.Path(name))))
			if target == outside || name != configName {
				_, err := Open(f.Dir)
				wantError(t, err, "run folder "+f.Path(name), "found a link that leads out of")
			}
		}
		for _, path := range []string{filepath.Join(secret, "step-00000001", "a"), outside} {
			if text, err := os.ReadFile(path); err != nil || string(text) != "precious" {
				t.Errorf("%s: %q, %v", name, text, err)
			}
		}
		if _, err := os.Stat(outside + "-new"); err == nil {
			t.Errorf("%s: a file was made outside", name)
		}
	}
	dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "file")
	expect.Write(t, outside, "precious")
	expect.OK(t, os.Symlink(outside, filepath.Join(dir, lockName)))
	_, err := Create(dir, "mappo")
	wantError(t, err, "run folder "+filepath.Join(dir, lockName), "leads out of")
	if text, err := os.ReadFile(outside); err != nil || string(text) != "precious" {
		t.Errorf("%q, %v", text, err)
	}
}

// TestFinished: a run has ended when its manifest says what it left, if it has one.
func TestFinished(t *testing.T) {
	f := newFolder(t)
	check := func(want bool) {
		t.Helper()
		if Finished(f.Dir) != want {
			t.Errorf("finished: %v", !want)
		}
	}
	check(false)
	expect.OK(t, f.WriteSummary("done\t\x1b[2J\n"))
	if text, err := os.ReadFile(f.Path(summaryName)); err != nil || string(text) != "done\t\\x1b[2J\n" {
		t.Errorf("%q, %v", text, err)
	}
	check(true)
	expect.Must(f.NoteInputs("1"))(t)
	check(false)
	expect.OK(t, f.WriteManifest(Manifest{}))
	check(true)
}

func TestCreateNamesAnUnusablePath(t *testing.T) {
	file := expect.File(t, "file", "")
	_, err := Create(filepath.Join(file, "run"), "mappo")
	wantError(t, err, filepath.Join(file, "run"), "not a directory")
}

func TestOpenWantsARun(t *testing.T) {
	_, err := Open(filepath.Join(t.TempDir(), "nothing"))
	wantError(t, err, "nothing is not a run folder", configName)
}

// TestOpenRemovesLeftovers: Open removes this package's unfinished files, and nobody else's.
func TestOpenRemovesLeftovers(t *testing.T) {
	f := newFolder(t)
	ours := []string{".config.yaml123", ".metrics.jsonl5", ".curves.png77", ".summary.txt0", ".best.json12",
		".reference.safetensors9", ".reference-eval.safetensors9",
		".new-model/weights", ".removed-model/weights",
		"checkpoints/.new-step-00000009/weights", "checkpoints/.removed-step-00000001/weights"}
	theirs := []string{".gitignore", ".DS_Store", ".config.yaml", ".config.yaml.swp", ".notes123", ".new-ideas/a",
		".replaced-notes/a", ".removed-step-00000001/a",
		"checkpoints/.new-notes/a", "checkpoints/.new-step-9/a", "checkpoints/.new-model/a",
		"checkpoints/.gitignore", "checkpoints/.replaced-x/a", "model1"}
	for _, name := range append(slices.Clone(ours), theirs...) {
		expect.Write(t, f.Path(name), "half")
	}
	f = reopen(t, f)
	for _, name := range ours {
		if _, err := os.Stat(f.Path(name)); err == nil {
			t.Errorf("%s is still there", name)
		}
	}
	for _, name := range theirs {
		if _, err := os.Stat(f.Path(name)); err != nil {
			t.Errorf("%s is gone", name)
		}
	}
}

// TestOwn: temporary files of a caller's own names are removed, others stay.
func TestOwn(t *testing.T) {
	f := newFolder(t)
	expect.OK(t, os.Mkdir(f.Path("texts"), 0o777))
	for _, name := range []string{".cases.jsonl12", ".cases.jsonl-34", ".notes.txt5", "cases.jsonl", "texts/.a.txt7"} {
		expect.Write(t, f.Path(name), "half")
	}
	expect.OK(t, f.Own("cases.jsonl", "texts/a.txt", "absent/b.txt"))
	if err := os.Remove(f.Path("texts")); err != nil {
		t.Errorf("a folder that should be empty: %v", err)
	}
	var left []string
	entries, err := os.ReadDir(f.Dir)
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if want := []string{".notes.txt5", "cases.jsonl", configName, lockName}; err != nil || !slices.Equal(left, want) {
		t.Errorf("left %q, %v, want %q", left, err, want)
	}
}

// TestLock lets another process hold the folder, and kills it.
func TestLock(t *testing.T) {
	f := newFolder(t)
	f.Close()
	cmd, lines := startChild(t, "hold", f.Dir)
	if !lines.Scan() || lines.Text() != "held" {
		t.Fatalf("child says %q", lines.Text())
	}
	_, err := Open(f.Dir)
	wantError(t, err, f.Dir, "in use by process")
	kill(cmd)
	again, err := Open(f.Dir)
	if err != nil {
		t.Fatalf("the lock outlived its process: %v", err)
	}
	again.Close()
}

// startChild runs this test binary as one of the processes of TestMain and returns its lines.
func startChild(t *testing.T, what string, args ...string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	exe := expect.Must(os.Executable())(t)
	cmd := exec.Command(exe, args...)
	cmd.Env = append(os.Environ(), childVar+"="+what)
	cmd.Stderr = os.Stderr
	out := expect.Must(cmd.StdoutPipe())(t)
	if _, err := cmd.StdinPipe(); err != nil { // open until the child is waited for
		t.Fatal(err)
	}
	expect.OK(t, cmd.Start())
	t.Cleanup(func() { kill(cmd) })
	return cmd, bufio.NewScanner(out)
}

// kill ends a process with SIGKILL; it may be gone already.
func kill(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

func TestWritesReplaceAtOnce(t *testing.T) {
	f := newFolder(t)
	expect.OK(t, f.WriteSummary("long words\n"))
	expect.OK(t, f.WriteSummary("short\n"))
	b, err := os.ReadFile(f.Path(summaryName))
	if err != nil || string(b) != "short\n" {
		t.Errorf("summary %q, %v", b, err)
	}
	expect.OK(t, os.Mkdir(f.Path("taken"), 0o777))
	wantError(t, replaceFile(f.Path("taken"), nil), f.Path("taken"))
}
