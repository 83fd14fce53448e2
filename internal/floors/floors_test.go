package floors

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/posttrain/posttrain"

// The floors of the house, ground first.
const (
	text = iota
	tensor
	behaviour
	method
	roof
)

var floorNames = []string{"text floor (no tensors)", "tensor floor", "behaviour floor", "method floor", "roof"}

// row is a package with its floor. It may import the standard library, packages of lower floors, its own parts, and
// what stands in allow: packages of its own floor, and modules.
type row struct {
	pkg   string
	floor int
	allow []string
}

// Modules by what they are for.
const (
	gomlx   = "github.com/gomlx/gomlx"
	compute = "github.com/gomlx/compute"
	onnx    = "github.com/gomlx/compute-onnx"
	xla     = "github.com/gomlx/go-xla"
	hub     = "github.com/gomlx/go-huggingface"
	openai  = "github.com/sashabaranov/go-openai"
	retry   = "github.com/hashicorp/go-retryablehttp"
	yaml    = "github.com/goccy/go-yaml"
	rename  = "github.com/google/renameio/v2"
	rate    = "golang.org/x/time/rate"
)

// table is the house. A package that is not in it belongs to the nearest one above it in the tree.
var table = []row{
	{"configs", text, nil},
	{"embedded", text, nil},
	{"data", text, []string{"github.com/parquet-go/parquet-go", openai}},
	{"reward", text, []string{"data"}},
	{"tokenizer", text, []string{hub, "github.com/nikolalohinski/gonja/v2", "github.com/dlclark/regexp2", "golang.org/x/text", rename}},
	{"batch", text, []string{"data", "tokenizer"}},
	{"run", text, []string{rename, "gonum.org/v1/plot", "github.com/schollz/progressbar/v3", yaml, "golang.org/x/term"}},

	{"backend", tensor, []string{gomlx, compute, onnx, xla, "github.com/go-logr/logr", "k8s.io/klog/v2"}},
	{"losses", tensor, []string{gomlx, compute}},
	{"model", tensor, []string{gomlx, compute, hub, rename}},

	{"rollout", behaviour, []string{gomlx, compute, openai, retry}},
	{"train", behaviour, []string{gomlx, compute}},
	{"eval", behaviour, []string{"rollout", rate}},
	{"serve", behaviour, []string{"rollout"}},

	{"grpo", method, []string{gomlx, compute}},

	{"internal/config", roof, []string{yaml}},
	{"internal/testkit", roof, []string{gomlx, compute}},
	{"internal/floors", roof, nil},
	{"cmd", roof, []string{"internal/config", "github.com/spf13/cobra", "github.com/spf13/pflag", "golang.org/x/term", gomlx, compute, yaml}},
	{"bench", roof, []string{gomlx, compute, "github.com/spf13/cobra", "github.com/spf13/pflag"}},
	{"scripts", roof, []string{"internal/config"}},
}

// testsOnly are packages that only tests may import.
var testsOnly = []string{"internal/testkit", "internal/testkit/expect", "internal/testkit/scripted", "backend/backendtest", "eval/judge/judgetest"}

// never are the rules that hold whatever the table says; those with a module hold for tests too.
var never = []struct {
	who, what string
	why       string
}{
	{"losses", "model", "losses are pure functions of log-probs"},
	{"reward", "model", "a reward is a function of texts"},
	{"data", gomlx, "data are records and files, without tensors"},
	{"data", compute, "data are records and files, without tensors"},
	{"model", "losses", "a model does not know what it is trained for"},
	{"eval", "train", "what measures does not depend on what trains"},
	{"eval", "grpo", "what measures does not depend on what trains"},
}

// engines are linked by package backend alone: nobody else depends on which one runs. The pure Go one does no harm in
// a test.
const goEngine = compute + "/gobackend"

var engines = []string{onnx, xla, goEngine, gomlx + "/backends"}

// source is a Go file with its imports.
type source struct {
	path    string // with slashes, from the repository root
	imports []imported
}

type imported struct {
	path string
	line int
}

func (s source) test() bool { return strings.HasSuffix(s.path, "_test.go") }

// dir is the file's folder, "" for the root.
func (s source) dir() string {
	dir, _, _ := cutLast(s.path)
	return dir
}

func cutLast(path string) (before, after string, ok bool) {
	i := strings.LastIndex(path, "/")
	if i < 0 {
		return "", path, false
	}
	return path[:i], path[i+1:], true
}

// within tells whether a path is the given one or lies below it.
func within(path, root string) bool { return path == root || strings.HasPrefix(path, root+"/") }

// rowOf is the row that a folder belongs to.
func rowOf(dir string) (row, bool) {
	for _, r := range table {
		if within(dir, r.pkg) {
			return r, true
		}
	}
	return row{}, false
}

// check returns a line for every import that breaks the table.
func check(sources []source) (faults []string) {
	for _, s := range sources {
		from, ok := rowOf(s.dir())
		if !ok {
			faults = append(faults, fmt.Sprintf("%s: package %q has no place in the house: give it a row in internal/floors", s.path, s.dir()))
			continue
		}
		for _, i := range s.imports {
			if why := fault(s, from, i.path); why != "" {
				faults = append(faults, fmt.Sprintf("%s:%d: imports %s: %s", s.path, i.line, i.path, why))
			}
		}
	}
	return faults
}

// fault says why a file must not import a path; empty where it may.
func fault(s source, from row, path string) string {
	for _, e := range engines {
		if within(path, e) && from.pkg != "backend" && !(s.test() && e == goEngine) {
			return "only backend links an engine"
		}
	}
	own, internal := strings.CutPrefix(path, module+"/")
	what := path
	if internal {
		what = own
	}
	for _, n := range never {
		if from.pkg == n.who && within(what, n.what) && !(s.test() && internal) {
			return fmt.Sprintf("never: %s", n.why)
		}
	}
	switch {
	case s.test() || standard(path) || allowed(from, what):
		return ""
	case slices.Contains(testsOnly, own):
		return "for tests only"
	case internal:
		return climbs(from, own)
	case from.floor == text && (within(path, gomlx) || within(path, compute)):
		return "the text floor has no tensors"
	}
	return fmt.Sprintf("%s takes of other modules %s", from.pkg, list(from.allow))
}

func standard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}

func allowed(from row, what string) bool {
	return slices.ContainsFunc(from.allow, func(a string) bool { return within(what, a) })
}

// climbs compares the floors of two packages of ours.
func climbs(from row, own string) string {
	to, ok := rowOf(own)
	if !ok {
		return "it has no place in the house: give it a row in internal/floors"
	}
	if to.pkg == from.pkg || to.floor < from.floor {
		return ""
	}
	return fmt.Sprintf("%s stands on the %s, %s on the %s; it may import floors below, and %s",
		from.pkg, floorNames[from.floor], to.pkg, floorNames[to.floor], list(from.allow))
}

func list(names []string) string {
	if len(names) == 0 {
		return "nothing"
	}
	return strings.Join(names, ", ")
}

// tree reads the imports of every Go file of the repository, whatever system or tag it is for.
func tree(t *testing.T, root string) []source {
	t.Helper()
	var sources []source
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && path != root && (strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || slices.Contains([]string{"testdata", "vendor", "runs"}, name)) {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") {
			return nil
		}
		s, err := parse(root, path)
		sources = append(sources, s)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return sources
}

func parse(root, path string) (source, error) {
	rel, err := filepath.Rel(root, path)
	if err != nil {
		return source{}, err
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, parser.ImportsOnly)
	if err != nil {
		return source{}, err
	}
	s := source{path: filepath.ToSlash(rel)}
	for _, i := range file.Imports {
		name, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			return source{}, err
		}
		s.imports = append(s.imports, imported{name, files.Position(i.Pos()).Line})
	}
	return s, nil
}

func TestHouse(t *testing.T) {
	root := filepath.Join("..", "..")
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil {
		t.Fatal(err)
	}
	sources := tree(t, root)
	if len(sources) < 10 {
		t.Fatalf("only %d files found", len(sources))
	}
	for _, f := range check(sources) {
		t.Error(f)
	}
}

// TestFaults proves that every rule bites: one import each, and the words that must name the reason.
func TestFaults(t *testing.T) {
	cases := []struct {
		file, path string
		want       string // empty: allowed
	}{
		{"losses/dpo.go", module + "/model", "never: losses are pure"},
		{"reward/ci.go", module + "/model", "never: a reward"},
		{"data/read.go", gomlx + "/core/graph", "never: data are records"},
		{"data/read_test.go", compute + "/dtypes", "never: data are records"},
		{"model/config.go", module + "/losses", "never: a model"},
		{"eval/ci.go", module + "/train", "never: what measures"},
		{"eval/ci.go", module + "/grpo", "never: what measures"},
		{"train/step.go", onnx, "only backend links an engine"},
		{"train/step_test.go", xla + "/compute/xla", "only backend links an engine"},
		{"losses/graph_test.go", goEngine, ""},
		{"cmd/posttrain/main.go", goEngine, "only backend links an engine"},
		{"model/graph.go", gomlx + "/backends/default", "only backend links an engine"},
		{"backend/onnx.go", onnx, ""},
		{"tokenizer/bpe.go", gomlx + "/core/graph", "the text floor has no tensors"},
		{"batch/pack.go", module + "/model", "batch stands on the text floor"},
		{"batch/encode.go", module + "/data", ""},
		{"data/read.go", module + "/tokenizer", "data stands on the text floor"},
		{"train/loop.go", module + "/grpo", "train stands on the behaviour floor"},
		{"train/loop.go", module + "/rollout", "train stands on the behaviour floor"},
		{"train/loop.go", module + "/run", ""},
		{"train/loop_test.go", module + "/internal/testkit", ""},
		{"train/loop.go", module + "/internal/testkit", "for tests only"},
		{"cmd/posttrain/mappo.go", module + "/backend/backendtest", "for tests only"},
		{"cmd/posttrain/mappo.go", module + "/internal/config", ""},
		{"internal/config/load.go", module + "/cmd/posttrain", "internal/config stands on the roof"},
		{"internal/config/load.go", module + "/train", ""},
		{"losses/dpo.go", "github.com/spf13/cobra", "losses takes of other modules"},
		{"losses/dpo.go", "math", ""},
		{"tokenizer/bpe.go", module + "/tokenizer/jinja", ""},
		{"run/folder.go", rename, ""},
		{"run/folder.go", rename + "x", "run takes of other modules"},
		{"train/loop.go", module + "/attic", "no place in the house"},
	}
	for _, c := range cases {
		got := check([]source{{c.file, []imported{{c.path, 7}}}})
		switch {
		case c.want == "" && len(got) > 0:
			t.Errorf("%s imports %s: %s, want it allowed", c.file, c.path, got[0])
		case c.want != "" && (len(got) != 1 || !strings.Contains(got[0], c.want) || !strings.HasPrefix(got[0], c.file+":7: imports "+c.path)):
			t.Errorf("%s imports %s: %q, want %q", c.file, c.path, got, c.want)
		}
	}
	if got := check([]source{{path: "attic/box.go"}}); len(got) != 1 || !strings.Contains(got[0], "no place in the house") {
		t.Errorf("a package without a row: %q", got)
	}
}
