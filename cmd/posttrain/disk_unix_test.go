//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// mostBytes is the size of a file that the system still takes from a process that is refused more: enough for metrics
// and tokenizer, too little for weights.
const mostBytes = 60_000

func init() { child = runWithSmallFiles }

// runWithSmallFiles runs a command in a process that from some text on may write no large file. From the text of step 3
// on, that is after the checkpoint of step 2, which may still be under way.
func runWithSmallFiles(until string, args []string) int {
	act := func() {
		for until == "step 3/5" && !exists("out/checkpoints/step-00000002") {
			time.Sleep(time.Millisecond)
		}
		limit := syscall.Rlimit{Cur: mostBytes, Max: mostBytes}
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
			panic(err)
		}
	}
	o := &watched{until: until, act: act}
	code := execute(context.Background(), streams{in: strings.NewReader(""), out: io.Discard, err: o}, args)
	fmt.Print(o.String())
	return code
}

// TestDiskFull: a checkpoint that does not fit is reported in one line that names the file; the one before stays, and
// the run continues from it to the end that it would have had.
func TestDiskFull(t *testing.T) {
	work(t, "qwen2-newer")
	args := tinyMappo(5, "--set", "train.checkpoint_every=2")
	o := cliWithSmallFiles(t, "step 3/5", args...)
	checkRefusal(t, o, faultCase{code: 1, says: []string{
		"checkpoint not saved: out/checkpoints/step-00000004/model/model.safetensors: file too large (the last " +
			"checkpoint is intact: out/checkpoints/step-00000002)"}})
	for _, name := range tree(t) {
		if strings.Contains(name, "step-00000004") || strings.Contains(name, "/.") {
			t.Errorf("left behind: %s", name)
		}
	}
	must(t, "mappo", "--resume", "out")
	must(t, append(args, "--out", "whole")...)
	sameRun(t, "whole", "out")
}

// TestDiskFullAtTheStart: the reference's log-probs are small; the first thing that does not fit is the last
// checkpoint.
func TestDiskFullAtTheStart(t *testing.T) {
	work(t, "qwen2-newer")
	o := cliWithSmallFiles(t, "pairs.jsonl", tinyMappo(2)...)
	checkRefusal(t, o, faultCase{code: 1, says: []string{"checkpoint not saved: " +
		"out/checkpoints/step-00000002/model/model.safetensors: file too large (there is no checkpoint yet)"}})
	if exists("out/model") || exists("out/summary.txt") {
		t.Error("a run that could not be saved has a model or a summary")
	}
}

// cliWithSmallFiles runs a command in a process of its own that is refused large files once a text is on standard
// error.
func cliWithSmallFiles(t *testing.T, until string, args ...string) outcome {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), childVar+"="+until)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	exit := (*exec.ExitError)(nil)
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return outcome{code: cmd.ProcessState.ExitCode(), err: out.String()}
}
