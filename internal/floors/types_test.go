package floors

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// checked is a package with its types, as this system builds it, tests aside.
type checked struct {
	types *types.Package
	info  *types.Info
	files []*ast.File
}

func (p *checked) folder() string { return strings.TrimPrefix(p.types.Path(), Module+"/") }

var packages []*checked // of [checkedPackages]

// checkedPackages are all packages of the module, each after those that it imports. They are read once.
func checkedPackages(t *testing.T) []*checked {
	t.Helper()
	if packages != nil {
		return packages
	}
	exports := map[string]string{}
	open := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	imports := importer.ForCompiler(positions, "gc", open)
	for line := range strings.Lines(listPackages(t)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if exports[f[0]] = f[1]; strings.HasPrefix(f[0], Module) {
			packages = append(packages, checkFiles(t, imports, f[0], f[2], strings.Fields(f[3])))
		}
	}
	if len(packages) < 20 {
		t.Fatalf("%d packages read: want all of the module", len(packages))
	}
	return packages
}

// listPackages has a line for each package that is built: its path, its compiled form, its folder and its files.
func listPackages(t *testing.T) string {
	t.Helper()
	list := exec.Command("go", "list", "-export", "-deps", "-f",
		"{{.ImportPath}}\t{{.Export}}\t{{.Dir}}\t{{range .GoFiles}}{{.}} {{end}}{{range .CgoFiles}}{{.}} {{end}}",
		"./...")
	list.Dir = filepath.Join("..", "..")
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	return string(out)
}

// checkFiles reads the package that files of a folder are.
func checkFiles(t *testing.T, imports types.Importer, path, dir string, names []string) *checked {
	t.Helper()
	p := &checked{info: &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}}}
	for _, name := range names {
		file, err := parser.ParseFile(positions, filepath.Join(dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		p.files = append(p.files, file)
	}
	c := types.Config{Importer: imports, FakeImportC: true, Error: func(error) {}} // the build finds errors
	p.types, _ = c.Check(path, positions, p.files, p.info)
	return p
}

// checkText reads a package of one file.
func checkText(t *testing.T, text string) *checked {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "p.go"), []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	return checkFiles(t, importer.ForCompiler(positions, "source", nil), "p", dir, []string{"p.go"})
}
