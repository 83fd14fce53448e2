package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/run"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// childVar makes the test binary do the work of a process that the system refuses something; its value is the text of
// standard error at which the refusing begins.
const childVar = "POSTTRAIN_CMD_TEST_CHILD"

// wholeProgram is a value of childVar: the test binary is posttrain itself, with its signals.
const wholeProgram = "main"

// child is what such a process does; nil where the system cannot refuse.
var child func(until string, args []string) int

func TestMain(m *testing.M) {
	switch until := os.Getenv(childVar); until {
	case "":
		os.Exit(expect.NoLeaks(m))
	case wholeProgram:
		runtime.LockOSThread() // what main does itself, it does in one thread: see killpoints_test.go
		main()
	default:
		os.Exit(child(until, os.Args[1:]))
	}
}

// outcome is what a command left on its streams.
type outcome struct {
	code     int
	out, err string
}

// last is the last line of standard error.
func (o outcome) last() string {
	all := strings.Split(strings.TrimRight(o.err, "\n"), "\n")
	return all[len(all)-1]
}

// watched is a stream that acts at a text.
type watched struct {
	bytes.Buffer
	until string
	act   func()
}

func (w *watched) Write(p []byte) (int, error) {
	n, err := w.Buffer.Write(p)
	if w.until != "" && strings.Contains(w.String(), w.until) {
		w.until = ""
		w.act()
	}
	return n, err
}

// cli runs a command in this process.
func cli(t *testing.T, args ...string) outcome {
	t.Helper()
	return cliUntil(t, "", args...)
}

// cliUntil runs a command and interrupts it as soon as a text is on standard error.
func cliUntil(t *testing.T, until string, args ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out bytes.Buffer
	err := &watched{until: until, act: cancel}
	code := execute(ctx, streams{in: strings.NewReader(""), out: &out, err: err}, args)
	return outcome{code, out.String(), err.String()}
}

// must runs a command that has to succeed.
func must(t *testing.T, args ...string) outcome {
	t.Helper()
	o := cli(t, args...)
	if o.code != 0 {
		t.Fatalf("posttrain %s: exit code %d: %s", strings.Join(args, " "), o.code, o.err)
	}
	return o
}

// root is the repository's.
var root = func() string {
	dir, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		panic(err)
	}
	return dir
}()

// fixture is the folder of one of the tiny models of package model.
func fixture(name string) string { return filepath.Join(root, "model", "testdata", name) }

// work makes an empty folder the working directory: it gets pairs.jsonl, and model/, a copy of a fixture.
func work(t *testing.T, name string) {
	t.Helper()
	t.Chdir(t.TempDir())
	copyModel(t, fixture(name), "model")
	write(t, "pairs.jsonl", pairLines(12, true))
}

// copyModel copies a fixture's files, but for the numbers that package model checks.
func copyModel(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	remove(t, filepath.Join(to, "oracle.json"))
}

// pairLines are n preference pairs: short conversations, the scores of pair i 0.9-i/50 and 0.2+i/40.
func pairLines(n int, scored bool) string {
	var b strings.Builder
	for i := range n {
		row := map[string]any{
			"prompt":   chat("user", fmt.Sprintf("Where is key %d?", i)),
			"chosen":   chat("assistant", fmt.Sprintf("It is in box %d.", i*i)),
			"rejected": chat("assistant", fmt.Sprintf("No idea, ask %d others.", 20-i)),
		}
		if scored {
			row["chosen_score"], row["rejected_score"] = 0.9-float64(i)/50, 0.2+float64(i)/40
		}
		b.WriteString(jsonLine(row))
	}
	return b.String()
}

func chat(role, content string) []any {
	return []any{map[string]any{"role": role, "content": content}}
}

func jsonLine(row any) string {
	b, err := json.Marshal(row)
	if err != nil {
		panic(err) // rows are maps and strings
	}
	return string(b) + "\n"
}

func write(t *testing.T, path, text string) {
	t.Helper()
	expect.Write(t, path, text)
}

func read(t *testing.T, path string) string {
	t.Helper()
	return expect.Read(t, path)
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// tiny are the flags of a quick run on the working directory's model: n steps of 4 examples, no warm-up.
func tiny(command string, n int, more ...string) []string {
	args := []string{command, "--model", "model", "--backend", "go", "--max-steps", fmt.Sprint(n),
		"--set", "train.batch_size=4", "--set", "train.warmup_steps=0", "--set", "train.learning_rate=1e-3", "--set",
		"data.eval_fraction=0.1", "--out", "out"}
	return append(args, more...)
}

// tinyMappo is tiny on pairs.jsonl, without evaluation.
func tinyMappo(n int, more ...string) []string {
	return append(tiny("mappo", n, "--data", "pairs.jsonl", "--set", "data.eval_fraction=0", "--set",
		"train.eval_every=0", "--set", "train.eval_metric="), more...)
}

// metrics are the records of a run, without what a clock measured.
func metrics(t *testing.T, dir string) []run.Record {
	t.Helper()
	records, err := run.ReadMetrics(filepath.Join(dir, "metrics.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	if len(records) == 0 {
		t.Fatalf("%s: no metrics", dir)
	}
	for _, r := range records {
		maps.DeleteFunc(r.Values, func(name string, _ float64) bool { return run.OfClock(name) })
	}
	return records
}

// sameRun compares what two runs ended in: the model's bytes, the metrics, the best checkpoint.
func sameRun(t *testing.T, a, b string) {
	t.Helper()
	for _, name := range []string{"model/model.safetensors", "model/config.json"} {
		if read(t, filepath.Join(a, name)) != read(t, filepath.Join(b, name)) {
			t.Errorf("%s differs between %s and %s", name, a, b)
		}
	}
	x, y := fmt.Sprint(metrics(t, a)), fmt.Sprint(metrics(t, b))
	if x != y {
		t.Errorf("metrics of %s and %s:\n%s\n%s", a, b, x, y)
	}
	if exists(filepath.Join(a, "best.json")) && read(t, filepath.Join(a, "best.json")) != read(t,
		filepath.Join(b, "best.json")) {
		t.Errorf("best.json differs between %s and %s", a, b)
	}
}

// tree lists the files and folders under the working directory.
func tree(t *testing.T) []string {
	t.Helper()
	var all []string
	err := fs.WalkDir(os.DirFS("."), ".", func(path string, _ fs.DirEntry, err error) error {
		all = append(all, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// words splits a command line as a shell does.
func words(t *testing.T, line string) []string {
	t.Helper()
	out, err := exec.Command("sh", "-c", `printf '%s\n' `+line).Output()
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	all := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	return slices.DeleteFunc(all, func(w string) bool { return w == "" })
}
