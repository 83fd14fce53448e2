package main

import (
	"os"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/internal/testkit/need"
)

// read gives what is printed about a recorded stream of go test -json, and whether all was well.
func read(t *testing.T, file string) (printed string, ok bool) {
	t.Helper()
	in := expect.Must(os.Open("testdata/" + file))(t)
	defer in.Close()
	var out strings.Builder
	r := newReport(&out)
	expect.OK(t, r.read(in))
	ok = r.end()
	return out.String(), ok
}

// TestReport: of tests that pass, fail, lack a need, or are skipped without one, the failed and the last kind are
// shown. What lacks a need is counted by tests, also where only a part of one does.
func TestReport(t *testing.T) {
	want := `=== RUN   TestFails/here
    toy_test.go:11: found 1, want 2
--- FAIL: TestFails/here (0.00s)
=== RUN   TestFails
--- FAIL: TestFails (0.00s)
=== RUN   TestSkips
    toy_test.go:21: not today
--- SKIP: TestSkips (0.00s)
FAIL	example.org/toy/toy	0.013s
   1 left out for want of xla: GET xla
   1 left out for want of model: GET model
   1 left out for want of slow: GET slow
skipped without a need of internal/testkit/need: example.org/toy/toy TestSkips
3 passed, 2 failed, 3 skipped
`
	for _, n := range need.Needs {
		want = strings.ReplaceAll(want, "GET "+n.Name, n.Get)
	}
	if printed, ok := read(t, "stream.jsonl"); printed != want || ok {
		t.Errorf("%v: printed\n%s\nwant\n%s", ok, printed, want)
	}
}

// TestEnds: a test that ends the process or takes too long is shown and has failed, and so has a package that does not
// compile.
func TestEnds(t *testing.T) {
	want := `# example.org/toy/c [example.org/toy/c.test]
c/c_test.go:3:33: undefined: undefined
FAIL	example.org/toy/b	0.003s
=== RUN   TestExits
about to exit
FAIL	example.org/toy/c [build failed]
FAIL	example.org/toy/d	2.018s
=== RUN   TestHangs
hanging
panic: test timed out after 2s
	running tests:
		TestHangs (2s)
0 passed, 3 failed, 0 skipped
`
	if printed, ok := read(t, "ends.jsonl"); printed != want || ok {
		t.Errorf("%v: printed\n%s\nwant\n%s", ok, printed, want)
	}
}

// TestWell: all is well where tests passed, none failed, and those that were skipped lack a need. Without a test it is
// not.
func TestWell(t *testing.T) {
	lack := `{"Action":"output","Package":"p","Test":"L","Output":"a.go:1: left out for want of onnx: no library\n"}
{"Action":"skip","Package":"p","Test":"L"}
`
	pass := `{"Action":"pass","Package":"p","Test":"T"}
{"Action":"pass","Package":"p"}
`
	for stream, want := range map[string]bool{pass: true, lack + pass: true, lack: false, "": false} {
		var out strings.Builder
		r := newReport(&out)
		if err := r.read(strings.NewReader(stream)); err != nil || r.end() != want {
			t.Errorf("%q: %v: %s", stream, err, out.String())
		}
	}
}
