//go:build unix

package main

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/posttrain/posttrain/internal/testkit/need"
)

// process is the whole program in a process of its own, as a shell starts it.
type process struct {
	*exec.Cmd
	err   io.ReadCloser // standard error
	lines *bufio.Scanner
}

// startProgram runs the program with standard output into a file or device; "": it is thrown away. A shell runs the
// commands of prepare first.
func startProgram(t *testing.T, stdout, prepare string, args ...string) *process {
	t.Helper()
	p := &process{Cmd: exec.Command("sh", append([]string{"-c", prepare + `exec "$0" "$@"`, os.Args[0]}, args...)...)}
	p.Env = append(os.Environ(), childVar+"="+wholeProgram)
	var err error
	if stdout != "" {
		out, err := os.OpenFile(stdout, os.O_WRONLY, 0)
		if errors.Is(err, fs.ErrNotExist) {
			need.Linux(t, err) // such as /dev/full
		}
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		p.Stdout = out
	}
	if p.err, err = p.StderrPipe(); err == nil {
		err = p.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	p.lines = bufio.NewScanner(p.err)
	return p
}

// until reads standard error to a line with a text.
func (p *process) until(t *testing.T, text string) {
	t.Helper()
	var all []string
	for p.lines.Scan() {
		if all = append(all, p.lines.Text()); strings.Contains(p.lines.Text(), text) {
			return
		}
	}
	t.Fatalf("%q is not on standard error:\n%s", text, strings.Join(all, "\n"))
}

// end waits for the process, and gives its exit code and the last line of its standard error.
func (p *process) end() (code int, last string) {
	for p.lines.Scan() {
		last = p.lines.Text()
	}
	p.Wait() // the exit code says what it found
	return p.ProcessState.ExitCode(), last
}

// longRun is a run that no test waits for the end of. It prints every twentieth step.
func longRun() []string { return tinyMappo(400, "--set", "train.log_every=1000") }

// TestHangup: a closed terminal, which may send SIGHUP twice, stops a run as Ctrl-C does.
func TestHangup(t *testing.T) {
	if signal.Ignored(syscall.SIGHUP) {
		need.Lack(t, "linux", "the tests run under nohup")
	}
	work(t, "qwen2-newer")
	p := startProgram(t, "", "", longRun()...)
	p.until(t, "step 1/")
	for range 2 {
		p.Process.Signal(syscall.SIGHUP)
	}
	code, last := p.end()
	if m := goOn.FindStringSubmatch(last); code != exitInterrupted || m == nil || m[3] != "mappo --resume out" {
		t.Errorf("exit code %d: %s", code, last)
	}
}

// TestTwoSignals: a second SIGTERM at once, as timeout sends it, does not take the last line away.
func TestTwoSignals(t *testing.T) {
	work(t, "qwen2-newer")
	p := startProgram(t, "", "", longRun()...)
	p.until(t, "step 1/")
	for range 3 {
		p.Process.Signal(syscall.SIGTERM)
		time.Sleep(10 * time.Millisecond)
	}
	if code, last := p.end(); code != exitInterrupted || !goOn.MatchString(last) {
		t.Errorf("exit code %d: %s", code, last)
	}
}

// TestNoHangup: under nohup the run continues; SIGTERM ends it.
func TestNoHangup(t *testing.T) {
	work(t, "qwen2-newer")
	p := startProgram(t, "", "trap '' HUP; ", longRun()...)
	p.until(t, "step 1/")
	p.Process.Signal(syscall.SIGHUP)
	p.until(t, "step 20/")
	p.Process.Signal(syscall.SIGTERM)
	if code, last := p.end(); code != exitInterrupted || !goOn.MatchString(last) {
		t.Errorf("exit code %d: %s", code, last)
	}
}

// TestNobodyReadsStandardError: posttrain 2>&1 | head -1 leaves a run that continues.
func TestNobodyReadsStandardError(t *testing.T) {
	work(t, "qwen2-newer")
	p := startProgram(t, "", "", longRun()...)
	p.until(t, "step 1/")
	p.err.Close()
	p.Wait()
	if code := p.ProcessState.ExitCode(); code != exitInterrupted {
		t.Fatalf("exit code %d, want %d", code, exitInterrupted)
	}
	o := cliUntil(t, "continuing after step", "mappo", "--resume", "out")
	if o.code != exitInterrupted || strings.Contains(o.err, "after step 0 ") {
		t.Errorf("exit code %d: %s", o.code, o.err)
	}
}

// TestFullDevice: what /dev/full does not take is a failure.
func TestFullDevice(t *testing.T) {
	p := startProgram(t, "/dev/full", "", "version")
	if code, last := p.end(); code != exitFailed || last != "posttrain: standard output: no space left on device" {
		t.Errorf("exit code %d: %s", code, last)
	}
}

// TestNobodyReadsStandardOutput: a closed pipe is no silent death by a signal.
func TestNobodyReadsStandardOutput(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	defer w.Close()
	cmd := exec.Command(os.Args[0], "mappo", "--explain")
	cmd.Env, cmd.Stdout = append(os.Environ(), childVar+"="+wholeProgram), w
	said := new(strings.Builder)
	cmd.Stderr = said
	cmd.Run()
	if code := cmd.ProcessState.ExitCode(); code != exitFailed ||
		said.String() != "posttrain: standard output: broken pipe\n" {
		t.Errorf("exit code %d: %s", code, said)
	}
}

// TestChatInterrupted: Ctrl-C ends an answer, and the conversation continues; at the prompt it ends the program.
func TestChatInterrupted(t *testing.T) {
	work(t, "qwen2-newer")
	write(t, "model/config.json", strings.Replace(read(t, "model/config.json"), `"max_position_embeddings": 256`,
		`"max_position_embeddings": 30000`, 1))
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	cmd := exec.Command(os.Args[0], "chat", "model", "--backend", "go", "--temperature", "0",
		"--max-new-tokens", "20000")
	cmd.Env, cmd.Stdin = append(os.Environ(), childVar+"="+wholeProgram), r
	p := &process{Cmd: cmd}
	out, err := cmd.StdoutPipe()
	if err == nil {
		p.err, err = cmd.StderrPipe()
	}
	if err = errors.Join(err, cmd.Start(), r.Close()); err != nil {
		t.Fatal(err)
	}
	p.lines = bufio.NewScanner(p.err)
	io.WriteString(w, "Where is the key?\n")
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	p.Process.Signal(os.Interrupt)
	p.until(t, "(stopped; Ctrl-C again ends the conversation)")
	p.Process.Signal(os.Interrupt)
	if code, last := p.end(); code != exitInterrupted || last != "posttrain: interrupted" {
		t.Errorf("exit code %d: %s", code, last)
	}
}
