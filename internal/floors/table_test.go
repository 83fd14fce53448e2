package floors

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Module is the path of this module.
const Module = "github.com/posttrain/posttrain"

// The floors of the house, ground first.
const (
	ground = iota
	text
	tensor
	behaviour
	method
	recipe
	roof
)

// Names are the floors, ground first.
var Names = []string{"ground", "text floor (no tensors)", "tensor floor", "behaviour floor", "method floor",
	"recipe floor", "roof"}

// Row is a package with its floor. It may import the standard library, packages of lower floors, its own parts, and the
// packages of its own floor and the modules in Allow.
type Row struct {
	Package string
	Floor   int // index in [Names]
	Allow   []string
}

// Modules by what they are for.
const (
	gomlx   = "github.com/gomlx/gomlx"
	compute = "github.com/gomlx/compute"
	onnx    = "github.com/gomlx/compute-onnx"
	xla     = "github.com/gomlx/go-xla"
	openai  = "github.com/sashabaranov/go-openai"
	retry   = "github.com/hashicorp/go-retryablehttp"
	yaml    = "github.com/goccy/go-yaml"
	rename  = "github.com/google/renameio/v2"
	nats    = "github.com/nats-io"
	rate    = "golang.org/x/time/rate"

	protowire = "google.golang.org/protobuf/encoding/protowire"
)

// Table is the house. A package without a row of its own belongs to the row of the nearest folder above it.
var Table = []Row{
	{"internal/adamw", ground, nil},
	{"internal/config", ground, []string{yaml}},
	{"internal/float", ground, nil},
	{"internal/secret", ground, nil},
	{"internal/web", ground, []string{retry, "internal/secret"}},
	{"internal/files", ground, []string{rename, "internal/hubcache"}},
	{"internal/hlo", ground, []string{protowire}},
	{"internal/hubcache", ground, []string{"internal/config"}},
	{"internal/mujoco", ground, []string{"github.com/ebitengine/purego", "internal/files"}},

	{"configs", text, nil},
	{"internal/gguf", text, nil},
	{"internal/embedded", text, nil},
	{"data", text, []string{"github.com/parquet-go/parquet-go", "github.com/klauspost/compress",
		"github.com/pierrec/lz4", "github.com/andybalholm/brotli"}},
	{"data/records", text, []string{"data", "reward"}},
	{"reward", text, []string{"data", "golang.org/x/text"}},
	{"tokenizer", text, []string{"github.com/dlclark/regexp2", "golang.org/x/text"}},
	{"internal/batch", text, []string{"data", "tokenizer"}},
	{"internal/hub", text, []string{"internal/run", retry}},
	{"internal/run", text, []string{"data", "golang.org/x/sys/windows", "golang.org/x/term", "gonum.org/v1/plot",
		"github.com/schollz/progressbar/v3", "gonum.org/v1/gonum"}},
	{"internal/doctor", text, []string{"internal/run", "gonum.org/v1/gonum"}},
	{"internal/track", text, []string{"internal/run", retry, protowire}},

	{"internal/backend", tensor, []string{gomlx, compute, onnx, xla, protowire, "github.com/go-logr/logr",
		"k8s.io/klog/v2"}},
	{"losses", tensor, []string{gomlx}},
	{"model", tensor, []string{gomlx, compute}},

	{"rollout", behaviour, []string{gomlx, compute, "ask", "rollout/remote"}},
	{"ask", behaviour, []string{"rollout"}},
	{"rollout/remote", behaviour, []string{"ask", "rollout", openai, retry}},
	{"train", behaviour, []string{gomlx, compute}},
	{"rollout/metered", behaviour, []string{"ask", "rollout/remote", "rollout", rate}},
	{"rollout/scorer", behaviour, []string{"ask", "rollout", "train", compute}},
	{"eval", behaviour, []string{"ask", "rollout"}},
	{"eval/gate", behaviour, []string{"eval", "gonum.org/v1/gonum"}},
	{"internal/serve", behaviour, []string{"rollout"}},

	{"grpo", method, []string{gomlx, compute}},
	{"federated", method, []string{"gonum.org/v1/gonum"}},
	{"federated/control", method, []string{"federated", "internal/mujoco", "gonum.org/v1/gonum"}},
	{"federated/lm", method, []string{"federated", "grpo", compute, "gonum.org/v1/gonum"}},
	{"federated/link", method, []string{nats, "federated", rate}},

	{"recipe", recipe, []string{compute}},
	{"eval/ci", recipe, []string{"eval", "recipe"}},

	{"internal/testkit", roof, nil},
	{"internal/floors", roof, nil},
	{"cmd", roof, []string{"github.com/spf13/cobra", "github.com/spf13/pflag", "golang.org/x/term"}},
	{"internal/speed", roof, []string{compute, "github.com/spf13/cobra", "golang.org/x/sync/errgroup", "gonum.org/v1/gonum"}},
}

// TestsOnly are the packages that only tests, and one another, may import.
var TestsOnly = []string{"internal/testkit", "internal/testkit/expect", "internal/testkit/gotest",
	"internal/testkit/need", "internal/backend/backendtest", "internal/hub/hubtest"}

// never are rules that no row can lift. Those about another module hold for tests too.
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
	{"federated", nats, "federated/link alone knows the network"},
	{"recipe", nats, "federated/link alone knows the network"},
}

// pure packages import nothing of ours. Those below them may.
var pure = []string{"federated"}

// engines are linked by package backend alone, so that nothing else depends on the engine that runs. Tests may link the
// pure Go engine.
const goEngine = compute + "/gobackend"

var engines = []string{onnx, xla, goEngine, gomlx + "/backends"}

// Source is a Go file with its imports.
type Source struct {
	Path    string // with slashes, from the repository root
	Imports []Import
	Lines   int
	Syntax  *ast.File // with comments; its places are in [positions]
}

// positions are the places of all syntax.
var positions = token.NewFileSet()

// Import is an import path and the line that has it.
type Import struct {
	Path string
	Line int
}

// Test reports whether the file is a test.
func (s Source) Test() bool { return strings.HasSuffix(s.Path, "_test.go") }

// Package is the file's folder, "." for the root.
func (s Source) Package() string { return path.Dir(s.Path) }

// within reports whether a path is root or below it.
func within(path, root string) bool { return path == root || strings.HasPrefix(path, root+"/") }

// RowOf is the row that a package belongs to.
func RowOf(pkg string) (row Row, ok bool) {
	for _, r := range Table {
		if within(pkg, r.Package) && len(r.Package) > len(row.Package) {
			row, ok = r, true
		}
	}
	return row, ok
}

const homeless = "has no place in the house: give it a row in internal/floors"

// Check returns a line for every import that breaks the table.
func Check(sources []Source) (faults []string) {
	for _, s := range sources {
		from, ok := RowOf(s.Package())
		if !ok {
			faults = append(faults, fmt.Sprintf("%s: package %q %s", s.Path, s.Package(), homeless))
			continue
		}
		for _, i := range s.Imports {
			if why := fault(s, from, i.Path); why != "" {
				faults = append(faults, fmt.Sprintf("%s:%d: imports %s: %s", s.Path, i.Line, i.Path, why))
			}
		}
	}
	return faults
}

// Stale returns a line for every allowance of the table that no file needs.
func Stale(sources []Source) (faults []string) {
	for _, r := range Table {
		for _, what := range r.Allow {
			if !slices.ContainsFunc(sources, func(s Source) bool { return s.needs(r, what) }) {
				const stale = "internal/floors: %s imports %s no longer: drop it from its row"
				faults = append(faults, fmt.Sprintf(stale, r.Package, what))
			}
		}
	}
	return faults
}

func (s Source) needs(r Row, what string) bool {
	from, _ := RowOf(s.Package())
	return from.Package == r.Package && !s.Test() && slices.ContainsFunc(s.Imports, func(i Import) bool {
		return within(i.Path, what) || within(i.Path, Module+"/"+what)
	})
}

// fault says why a file must not import a path. It is empty if the file may import it.
func fault(s Source, from Row, path string) string {
	for _, e := range engines {
		if within(path, e) && from.Package != "internal/backend" && !(s.Test() && e == goEngine) {
			return "only internal/backend links an engine"
		}
	}
	own, internal := strings.CutPrefix(path, Module+"/")
	what := path
	if internal {
		what = own
	}
	for _, n := range never {
		if from.Package == n.who && within(what, n.what) && !(s.Test() && internal) {
			return fmt.Sprintf("never: %s", n.why)
		}
	}
	if internal && !s.Test() && slices.Contains(pure, s.Package()) {
		return fmt.Sprintf("never: %s is pure functions", s.Package())
	}
	switch {
	case s.Test() || standard(path) || isAllowed(from, what):
		return ""
	case slices.Contains(TestsOnly, own) && slices.Contains(TestsOnly, s.Package()):
		return ""
	case slices.Contains(TestsOnly, own):
		return "for tests only"
	case internal:
		return climbs(from, own)
	case from.Floor <= text && (within(path, gomlx) || within(path, compute)):
		return "the text floor has no tensors"
	}
	return fmt.Sprintf("of other modules %s may import %s", from.Package, list(from.Allow))
}

func standard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}

func isAllowed(from Row, what string) bool {
	return slices.ContainsFunc(from.Allow, func(a string) bool { return within(what, a) })
}

// climbs says why a package must not import another one of ours.
func climbs(from Row, own string) string {
	to, ok := RowOf(own)
	if !ok {
		return "it " + homeless
	}
	if to.Package == from.Package || to.Floor < from.Floor {
		return ""
	}
	return fmt.Sprintf("%s is on the %s, %s on the %s; it may import floors below, and %s",
		from.Package, Names[from.Floor], to.Package, Names[to.Floor], list(from.Allow))
}

func list(names []string) string {
	if len(names) == 0 {
		return "nothing"
	}
	return strings.Join(names, ", ")
}

// house is what [Read] finds in this repository.
var house = sync.OnceValues(func() ([]Source, error) { return Read(filepath.Join("..", "..")) })

// sourcesOf reads this repository, once for all tests.
func sourcesOf(t *testing.T) []Source {
	t.Helper()
	sources, err := house()
	if err != nil || len(sources) < 10 {
		t.Fatalf("%d files found, %v", len(sources), err)
	}
	return sources
}

// Read reads every Go file of the repository, for any system and build tag.
func Read(root string) ([]Source, error) {
	var sources []Source
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && path != root && (strings.ContainsAny(name[:1], "._") || slices.Contains(skipped, name)) {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") {
			return nil
		}
		s, err := parse(root, path)
		sources = append(sources, s)
		return err
	})
	return sources, err
}

// skipped are folders without Go files of the house.
var skipped = []string{"testdata", "vendor", "runs"}

func parse(root, path string) (Source, error) {
	rel, err := filepath.Rel(root, path)
	if err != nil {
		return Source{}, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return Source{}, err
	}
	return parseText(filepath.ToSlash(rel), string(text))
}

func parseText(path, text string) (Source, error) {
	file, err := parser.ParseFile(positions, path, text, parser.ParseComments)
	if err != nil {
		return Source{}, err
	}
	s := Source{Path: path, Lines: strings.Count(text, "\n"), Syntax: file}
	for _, i := range file.Imports {
		name, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			return Source{}, err
		}
		s.Imports = append(s.Imports, Import{name, positions.Position(i.Pos()).Line})
	}
	return s, nil
}
