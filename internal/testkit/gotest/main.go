// Command gotest runs go test with its arguments, prints what go test prints, and then what was left out, for want of
// what. A test that is skipped without a need fails the run.
//
//	go run ./internal/testkit/gotest [ARGUMENTS OF GO TEST]
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/internal/testkit/need"
)

func main() {
	cmd := exec.Command("go", append([]string{"test", "-json"}, os.Args[1:]...)...)
	cmd.Env = append(os.Environ(), need.FoundVariable+"="+need.Found())
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	r := newReport(os.Stdout)
	if err := r.read(out); err != nil {
		fmt.Fprintln(os.Stderr, "go test -json:", err)
	}
	err = cmd.Wait()
	if !r.end() || err != nil {
		os.Exit(1)
	}
}

// An event is a line of go test -json.
type event struct {
	Action, Package, Test, Output string
}

// A report is what became of the tests.
type report struct {
	out     io.Writer
	output  map[[2]string][]string // by package and test
	lacks   map[string]map[[2]string]bool
	unknown []string        // tests that were skipped without a need
	broken  map[string]bool // packages with a failed test
	passed  int
	failed  int
	skipped int
}

func newReport(out io.Writer) *report {
	return &report{out: out, output: map[[2]string][]string{}, lacks: map[string]map[[2]string]bool{},
		broken: map[string]bool{}}
}

func (r *report) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		var e event
		if json.Unmarshal(line, &e) != nil { // such as a line of the program's own on its standard output
			fmt.Fprintf(r.out, "%s", line)
			continue
		}
		r.take(e)
	}
}

func (r *report) take(e event) {
	key := [2]string{e.Package, e.Test}
	switch e.Action {
	case "output":
		r.takeOutput(key, e.Output)
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "pass", "fail", "skip":
		r.takeResult(key, e)
	}
}

func (r *report) takeOutput(key [2]string, line string) {
	if key[1] == "" { // of the package: its "ok" line, or a panic
		if line != "PASS\n" && line != "FAIL\n" {
			fmt.Fprint(r.out, line)
		}
		return
	}
	r.output[key] = append(r.output[key], line)
	if _, after, found := strings.Cut(line, need.LeftOut); found {
		name, _, _ := strings.Cut(after, ":")
		if r.lacks[name] == nil {
			r.lacks[name] = map[[2]string]bool{}
		}
		r.lacks[name][key] = true
	}
}

func (r *report) takeResult(key [2]string, e event) {
	if key[1] == "" {
		if e.Action == "fail" {
			r.failPackage(e.Package)
		}
		return
	}
	output := strings.Join(r.output[key], "")
	delete(r.output, key)
	switch e.Action {
	case "pass":
		r.passed++
	case "fail":
		r.fail(e.Package, output)
	case "skip":
		r.skipped++
		if !strings.Contains(output, need.LeftOut) {
			r.unknown = append(r.unknown, e.Package+" "+e.Test)
			fmt.Fprint(r.out, output)
		}
	}
}

func (r *report) fail(pkg, output string) {
	r.failed++
	r.broken[pkg] = true
	fmt.Fprint(r.out, output)
}

// failPackage counts the tests that did not end, such as one that took too long or ended the process. A package that
// does not compile counts as one.
func (r *report) failPackage(pkg string) {
	byTest := func(a, b [2]string) int { return cmp.Compare(a[1], b[1]) }
	for _, key := range slices.SortedFunc(maps.Keys(r.output), byTest) {
		if key[0] == pkg {
			r.fail(pkg, strings.Join(r.output[key], ""))
			delete(r.output, key)
		}
	}
	if !r.broken[pkg] {
		r.fail(pkg, "")
	}
}

// end prints what was left out and how many tests there were. It reports whether all is well.
func (r *report) end() bool {
	for _, n := range need.Needs {
		if tests := r.lacks[n.Name]; len(tests) > 0 {
			fmt.Fprintf(r.out, "%4d left out for want of %s: %s\n", len(tests), n.Name, n.Get)
		}
	}
	for _, test := range r.unknown {
		fmt.Fprintln(r.out, "skipped without a need of internal/testkit/need:", test)
	}
	fmt.Fprintf(r.out, "%d passed, %d failed, %d skipped\n", r.passed, r.failed, r.skipped)
	return r.failed+len(r.unknown) == 0 && r.passed > 0
}
