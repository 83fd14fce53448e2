//go:build linux

package main

import (
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/need"
)

// The calls that change which files there are and what is on the disk. strace counts a thread's calls; the program runs
// in a single one here (wholeProgram).
const diskCalls = "?rename,?renameat,?renameat2,?unlink,?unlinkat,?rmdir,fsync,?fdatasync"

var callLine = regexp.MustCompile(`(?m)^(\d+) +([a-z0-9]+)\(`)

// TestKillPoints kills small runs at each of these calls, the first, the second, … to the last, and lets each but the
// removals fail once. What is left must continue, and end in the folder that an undisturbed run leaves, bit for bit.
func TestKillPoints(t *testing.T) {
	need.Ask(t, "slow")
	need.Path(t, "strace") // kills the runs
	work(t, "qwen2-newer")
	for _, r := range smallRuns() {
		t.Run(r.name, func(t *testing.T) { disturbEachCall(t, r) })
	}
}

// smallRun is a run into the folder out of a few steps.
type smallRun struct {
	name          string
	start, resume []string
}

func smallRuns() []smallRun {
	judged := []string{"eval", "privacylens", "--out", "out"}
	return []smallRun{
		{"eval privacylens", judged, judged},
		{"mappo", tiny("mappo", 3, "--data", "pairs.jsonl", "--set", "train.eval_every=2", "--set",
			"train.checkpoint_every=1", "--set", "train.checkpoint_keep=1"), []string{"mappo", "--resume", "out"}},
		{"federated simulate", simulate("--out", "out", "--agents", "2", "--updates", "5", "--set", "control.steps=20",
			"--set", "control.hidden=[3]", "--set", "checkpoint_every=2", "--set", "checkpoint_keep=1"),
			simulate("--resume", "out")},
	}
}

// continues lets a run that was disturbed by what go on in the folder out, which must become the whole one.
func (r smallRun) continues(t *testing.T, what, whole string) {
	t.Helper()
	args := r.start
	if exists("out/config.yaml") {
		args = r.resume
	}
	if o := cli(t, args...); o.code != 0 {
		t.Fatalf("after %s the run cannot continue: %s", what, o.err)
	}
	if testkit.SameFolders(t, whole, "out"); t.Failed() {
		t.Fatalf("after %s", what)
	}
	if err := os.RemoveAll("out"); err != nil {
		t.Fatal(err)
	}
}

// disturbEachCall disturbs a run into the folder out at every call, each time a new one.
func disturbEachCall(t *testing.T, r smallRun) {
	counts, whole := countCalls(t, r.start), "whole "+r.name
	if err := os.Rename("out", whole); err != nil {
		t.Fatal(err)
	}
	for _, call := range slices.Sorted(maps.Keys(counts)) {
		for _, fault := range []string{"signal=KILL", "error=EIO"} {
			if fault == "error=EIO" && (strings.HasPrefix(call, "unlink") || call == "rmdir") {
				continue // what cannot be removed stays
			}
			for n := 1; n <= counts[call]; n++ {
				what := call + ":" + fault + ":when=" + strconv.Itoa(n)
				disturb(t, what, r.start)
				r.continues(t, what, whole)
			}
			t.Logf("%s at each of %d calls of %s: same bits", fault, counts[call], call)
		}
	}
}

// countCalls runs the program and counts its calls by name. They must be of a single thread.
func countCalls(t *testing.T, args []string) map[string]int {
	t.Helper()
	if out, err := traced(args, "-o", "calls", "-e", "trace="+diskCalls).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	threads, counts := map[string]int{}, map[string]int{}
	for _, m := range callLine.FindAllStringSubmatch(read(t, "calls"), -1) {
		threads[m[1]]++
		counts[m[2]]++
	}
	if len(threads) != 1 {
		t.Fatalf("the calls are of several threads, so that they cannot be counted: %v", threads)
	}
	return counts
}

// disturb runs the program with a fault in one call. It must die of a kill; after an error it may fail, or have done
// without the call.
func disturb(t *testing.T, what string, args []string) {
	t.Helper()
	call, fault, _ := strings.Cut(what, ":")
	cmd := traced(args, "-o", "/dev/null", "-e", "trace="+call, "-e", "inject="+what)
	out, err := cmd.CombinedOutput()
	code := cmd.ProcessState.ExitCode()
	switch kill := strings.HasPrefix(fault, "signal"); {
	case kill && err == nil:
		t.Errorf("%s: the call was not reached", what)
	case !kill && code != 0 && code != exitFailed:
		t.Errorf("%s: exit code %d: %s", what, code, out)
	}
}

// traced is the whole program under strace. With a single core, checkpoints are written between the steps.
func traced(args []string, options ...string) *exec.Cmd {
	options = append([]string{"-f", "-qq", "-e", "signal=none"}, options...)
	cmd := exec.Command("strace", append(append(options, os.Args[0]), args...)...)
	cmd.Env = append(os.Environ(), childVar+"="+wholeProgram, "GOMAXPROCS=1")
	return cmd
}
