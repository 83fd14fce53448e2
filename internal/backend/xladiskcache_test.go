//go:build cgo && linux

package backend

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// heard collects notices.
type heard []string

func (h *heard) hear(line string) { *h = append(*h, line) }

// testEngine opens xla with a folder of programs.
func testEngine(t *testing.T, folder string) (*Engine, *heard) {
	t.Helper()
	t.Setenv(diskCacheEnv, folder)
	e := openTestXLA(t)
	lines := &heard{}
	e.Listen(lines.hear)
	return e, lines
}

// runProgram compiles a program whose sums depend on their order, runs it in donated memory, and gives its bits.
func runProgram(t *testing.T, e *Engine, scale float64) []float32 {
	t.Helper()
	p, err := e.Compile("sums", func(g *graph.Graph) []*graph.Node {
		x := graph.Parameter(g, "x", shapes.Make(dtypes.Float32, 64, 64))
		y := graph.Parameter(g, "y", shapes.Make(dtypes.Float32, 64, 64))
		return []*graph.Node{graph.Add(y, graph.Tanh(graph.MulScalar(graph.MatMul(x, graph.Exp(x)), scale)))}
	}, DonateLast(1))
	expect.OK(t, err)
	defer p.Close()
	x := make([]float32, 64*64)
	for i := range x {
		x[i] = float32(i%97)/97 - 0.5
	}
	var in []compute.Buffer
	for range 2 {
		b := expect.Must(e.Float32(x, 64, 64))(t)
		in = append(in, b)
	}
	out := runDonated(t, p, in)
	flat := expect.Must(out[0].Data())(t)
	defer FinalizeAll(in[0], out[0])
	return slices.Clone(flat.([]float32))
}

func programsIn(t *testing.T, folder string) []string {
	t.Helper()
	return expect.Must(filepath.Glob(filepath.Join(folder, "*"+programSuffix)))(t)
}

// TestKeptProgramsGiveTheSameBits: the second compilation of a program is a reading of its file, which is left as it
// is; other programs have files of their own.
func TestKeptProgramsGiveTheSameBits(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "programs")
	e, lines := testEngine(t, folder)
	want := runProgram(t, e, 1)
	names := programsIn(t, folder)
	if len(names) != 1 {
		t.Fatalf("%d files after one program, want 1", len(names))
	}
	old := time.Now().Add(-24 * time.Hour)
	expect.OK(t, os.Chtimes(names[0], old, old))
	again, _ := testEngine(t, folder)
	if got := runProgram(t, again, 1); !slices.Equal(got, want) {
		t.Error("a kept program gives other bits")
	}
	if info, err := os.Stat(names[0]); err != nil || !info.ModTime().After(old) {
		t.Error("the file was not used")
	}
	runProgram(t, e, 2)
	t.Setenv("XLA_FLAGS", os.Getenv("XLA_FLAGS")+" --other") // for the key alone: XLA has read its flags
	runProgram(t, e, 1)
	if n := len(programsIn(t, folder)); n != 3 || len(*lines) > 0 {
		t.Errorf("%d files of three programs, and notices %q", n, *lines)
	}
}

// TestBrokenProgramsAreCompiledAgain: each kind of damage is one line that names the file, the program runs, and its
// file is whole again.
func TestBrokenProgramsAreCompiledAgain(t *testing.T) {
	folder := t.TempDir()
	e, lines := testEngine(t, folder)
	want := runProgram(t, e, 1)
	name := programsIn(t, folder)[0]
	whole := expect.Bytes(t, name)
	key := strings.TrimSuffix(filepath.Base(name), programSuffix)
	flipped := slices.Clone(whole)
	flipped[len(flipped)/2] ^= 1
	for what, content := range map[string][]byte{
		"empty":             {},
		"cut short":         whole[:len(whole)-1],
		"a flipped bit":     flipped,
		"another program's": bytes.Replace(whole, []byte(key), []byte(keyOf([]byte("another"))), 1),
		"refused by XLA":    append(seal(key, []byte("no program")), "no program"...),
	} {
		expect.OK(t, os.WriteFile(name, content, 0o600))
		*lines = nil
		if got := runProgram(t, e, 1); !slices.Equal(got, want) {
			t.Errorf("%s: other bits", what)
		}
		if len(*lines) != 1 || !strings.Contains((*lines)[0], name) || !strings.Contains((*lines)[0], "compiled again") ||
			strings.Contains((*lines)[0], "\n") {
			t.Errorf("%s: notices %q, want one line with %s", what, *lines, name)
		}
		if again, err := os.ReadFile(name); err != nil || len(again) < len(whole)/2 {
			t.Errorf("%s: the file was not replaced: %v", what, err)
		}
		*lines = nil
		if runProgram(t, e, 1); len(*lines) > 0 {
			t.Errorf("%s: afterwards %q", what, *lines)
		}
	}
}

// TestNoPlaceForPrograms: programs are compiled, and one line says why they are not kept. A name that can mean nothing
// is an error.
func TestNoPlaceForPrograms(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	expect.OK(t, os.WriteFile(file, nil, 0o600))
	open := t.TempDir()
	expect.OK(t, os.Chmod(open, 0o777))
	for folder, want := range map[string]string{
		filepath.Join(file, "programs"): "not a directory",
		open:                            "others may write " + open,
	} {
		e, lines := testEngine(t, folder)
		runProgram(t, e, 1)
		if len(*lines) != 1 || !strings.Contains((*lines)[0], "not kept") || !strings.Contains((*lines)[0], want) {
			t.Errorf("%s: notices %q, want one with %q", folder, *lines, want)
		}
	}
	gone := filepath.Join(t.TempDir(), "programs")
	e, lines := testEngine(t, gone)
	expect.OK(t, os.Remove(gone))
	runProgram(t, e, 1)
	runProgram(t, e, 2)
	if len(*lines) != 1 || !strings.Contains((*lines)[0], "not kept") {
		t.Errorf("a folder taken away: notices %q, want one", *lines)
	}
	t.Setenv(diskCacheEnv, "programs")
	if _, err := Open("xla:cpu"); err == nil || !strings.Contains(err.Error(), diskCacheEnv+"=programs: want") {
		t.Errorf("a relative folder: %v", err)
	}
}

// TestProgramsAreBounded: the programs used longest ago make room, and what a killed process has left goes.
func TestProgramsAreBounded(t *testing.T) {
	folder := t.TempDir()
	t.Setenv(diskCacheEnv, folder)
	s := expect.Must(openDiskCache())(t)
	s.most = 3500
	left := filepath.Join(folder, newPrefix+"1")
	expect.OK(t, os.WriteFile(left, nil, 0o600))
	before := time.Now().Add(-48 * time.Hour)
	expect.OK(t, os.Chtimes(left, before, before))
	for i, name := range []string{"a", "b", "c"} {
		s.put(name, make([]byte, 900))
		at := before.Add(time.Duration(i) * time.Hour)
		expect.OK(t, os.Chtimes(filepath.Join(folder, name+programSuffix), at, at))
	}
	if s.take("a") == nil {
		t.Fatal("a is gone")
	}
	s.put("d", make([]byte, 900))
	var names []string
	entries, err := os.ReadDir(folder)
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), programSuffix))
	}
	if err != nil || !slices.Equal(names, []string{"a", "c", "d"}) {
		t.Errorf("%q are left, %v: want a, c and d", names, err)
	}
}

// TestKilledWhileProgramsAreWritten: whatever a kill leaves, each file is whole.
func TestKilledWhileProgramsAreWritten(t *testing.T) {
	if os.Getenv("POSTTRAIN_TEST_CACHE") != "" {
		s, err := openDiskCache()
		for i := 0; err == nil; i++ { // until it is killed
			s.put(fmt.Sprint(i%3), bytes.Repeat([]byte{byte(i)}, 1<<22))
			fmt.Println("written")
		}
		t.Fatal(err)
	}
	folder := t.TempDir()
	t.Setenv(diskCacheEnv, folder)
	t.Setenv("POSTTRAIN_TEST_CACHE", "1")
	for kill := range 8 {
		child := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
		out, err := child.StdoutPipe()
		if err == nil {
			err = child.Start()
		}
		expect.OK(t, err)
		lines := bufio.NewScanner(out)
		for range 1 + kill%3 {
			lines.Scan()
		}
		_ = child.Process.Kill()
		_ = child.Wait()
	}
	s := expect.Must(openDiskCache())(t)
	for _, name := range programsIn(t, folder) {
		if s.take(strings.TrimSuffix(filepath.Base(name), programSuffix)) == nil {
			t.Errorf("%s is not whole", name)
		}
	}
	if len(s.unsaid) > 0 || len(programsIn(t, folder)) == 0 {
		t.Errorf("notices %q", s.unsaid)
	}
}
