//go:build !windows

package scorer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/posttrain/posttrain/internal/testkit/expect"
)

func init() { leave = leaveChild }

// leaveChild starts a child that keeps the output open, and a file locked as long as it lives.
func leaveChild(act string) {
	path := os.Getenv("SCORER_TEST_LOCK")
	held, err := os.Create(path + ".new")
	if err == nil {
		err = syscall.Flock(int(held.Fd()), syscall.LOCK_EX)
	}
	child := exec.Command("sleep", "1000")
	child.Stdout, child.Stderr, child.ExtraFiles = os.Stdout, os.Stderr, []*os.File{held}
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: act == "leave an orphan"}
	if err = errors.Join(err, child.Start()); err == nil {
		err = os.WriteFile(path+".pid", []byte(strconv.Itoa(child.Process.Pid)), 0o666)
	}
	if err = errors.Join(err, os.Rename(held.Name(), path)); err != nil {
		panic(err)
	}
	switch act {
	case "leave and hang":
		time.Sleep(time.Hour)
	case "leave and flood":
		fmt.Println(strings.Repeat("very good ", 1<<20))
	}
}

// lock waits for a file's lock, or says that another has it.
func lock(t *testing.T, path string, how int) error {
	t.Helper()
	file := expect.Must(os.Open(path))(t)
	defer file.Close()
	return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|how)
}

// TestProgramsEndWithTheirChildren: a program that ends, writes too much or is interrupted leaves no child.
func TestProgramsEndWithTheirChildren(t *testing.T) {
	for act, want := range map[string]string{"leave": "<nil>", "leave and hang": "context canceled",
		"leave and flood": "reward command " + os.Args[0] + ": it wrote more than 8192 bytes: want a line with a " +
			"number for each answer"} {
		path := filepath.Join(t.TempDir(), "lock")
		t.Setenv("SCORER_TEST_LOCK", path)
		ctx, stop := context.WithCancel(t.Context())
		if act == "leave and hang" {
			go func() {
				defer stop()
				for exec.Command("test", "-e", path).Run() != nil && t.Context().Err() == nil {
				}
			}()
		}
		if _, err := openCommand(t, act, time.Hour).Score(ctx, plain("a")); fmt.Sprint(err) != want {
			t.Errorf("%s: %v, want %s", act, err, want)
		}
		stop()
		if err := lock(t, path, 0); err != nil { // waits for the child's end
			t.Error(act, err)
		}
	}
}

// TestOrphansCostNothing: a child that leaves the program's group and keeps the output open is not waited for, and all
// scores are there.
func TestOrphansCostNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	t.Setenv("SCORER_TEST_LOCK", path)
	scores, err := openCommand(t, "leave an orphan", time.Hour).Score(t.Context(), plain("abc"))
	if err != nil || verdicts(scores) != "[{3 }]" {
		t.Error(scores, err)
	}
	if lock(t, path, syscall.LOCK_NB) == nil {
		t.Error("the child is gone: it was waited for")
	}
	text, err := os.ReadFile(path + ".pid")
	pid, _ := strconv.Atoi(string(text))
	if err != nil || pid <= 1 {
		t.Fatal(pid, err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
}

// TestOutputIsWhole: all that a program writes ahead of its end is read, as much as a pipe holds.
func TestOutputIsWhole(t *testing.T) {
	for range 50 {
		out := &bounded{most: 1 << 20, stop: func() { t.Error("stopped") }}
		const text = "12345 67890 12345\n"
		cmd := exec.CommandContext(t.Context(), "sh", "-c", "for i in 1 2 3 4; do echo '"+text[:len(text)-1]+"'; done; (sleep 1000 &)")
		if err := execute(cmd, out, &tail{}); err != nil || string(out.text) != strings.Repeat(text, 4) {
			t.Fatalf("%q %v", out.text, err)
		}
	}
}
