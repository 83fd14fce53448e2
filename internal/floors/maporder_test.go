package floors

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestNoSumOverMapOrder: no package adds floats up in the order of a map, which is another one in each process: equal
// runs would differ in the last bits. A sum for each key is one of its own and has no order.
func TestNoSumOverMapOrder(t *testing.T) {
	list := exec.Command("go", "list", "-export", "-deps", "-f",
		"{{.ImportPath}}\t{{.Export}}\t{{.Dir}}\t{{range .GoFiles}}{{.}} {{end}}{{range .CgoFiles}}{{.}} {{end}}",
		"./...")
	list.Dir = filepath.Join("..", "..")
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	exports, own := map[string]string{}, 0
	set := token.NewFileSet()
	open := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	imports := importer.ForCompiler(set, "gc", open)
	for line := range strings.Lines(string(out)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if exports[f[0]] = f[1]; strings.HasPrefix(f[0], Module) { // after all that it imports
			own++
			for _, fault := range sumsOverMaps(t, set, imports, f[2], strings.Fields(f[3])) {
				t.Error(fault)
			}
		}
	}
	if own < 20 {
		t.Errorf("%d packages read: want all of the module", own)
	}
}

// TestSumOverMapOrderBites finds the forms of such a sum, and passes over what has no order.
func TestSumOverMapOrderBites(t *testing.T) {
	for body, faults := range map[string]int{
		"for _, v := range m { sum += v }":                              1,
		"for k := range m { sum = sum + m[k] }":                         1,
		"for _, v := range m { if v > 0 { s.total -= v } }":             1,
		"for v := range maps.Values(m) { sum += v }":                    1,
		"for _, k := range slices.Sorted(maps.Keys(m)) { sum += m[k] }": 0,
		"for k, v := range m { other[k] += v }":                         0,
		"for range m { n++ }; for _, v := range m { n += int(v) }":      0,
		"for _, v := range []float64{1} { sum += v }":                   0,
	} {
		dir := t.TempDir()
		text := "package p\nimport (\"maps\"; \"slices\")\nvar _, _ = maps.Keys[map[int]int], slices.Sorted[int]\n" +
			"func f(m, other map[int]float64) (sum float64, n int) {\nvar s struct{ total float64 }\n" + body +
			"\nreturn sum + s.total, n\n}\n"
		if err := os.WriteFile(filepath.Join(dir, "p.go"), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		set := token.NewFileSet()
		found := sumsOverMaps(t, set, importer.ForCompiler(set, "source", nil), dir, []string{"p.go"})
		if len(found) != faults {
			t.Errorf("%s: found %q, want %d", body, found, faults)
		}
	}
}

// sumsOverMaps reads a package, and gives the place of each sum of floats in the order of a map.
func sumsOverMaps(t *testing.T, set *token.FileSet, from types.Importer, dir string, names []string) (faults []string) {
	t.Helper()
	var files []*ast.File
	for _, name := range names {
		file, err := parser.ParseFile(set, filepath.Join(dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}}
	c := types.Config{Importer: from, FakeImportC: true, Error: func(error) {}} // the build finds errors
	c.Check(dir, set, files, info)
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			if loop, ok := n.(*ast.RangeStmt); ok && overMap(info, loop.X) {
				for _, at := range floatSums(info, loop.Body) {
					faults = append(faults, fmt.Sprintf("%s: floats are added up in the order of a map: sort its keys",
						set.Position(at)))
				}
			}
			return true
		})
	}
	return faults
}

// overMap reports whether a loop over x has the order of a map.
func overMap(info *types.Info, x ast.Expr) bool {
	if call, ok := x.(*ast.CallExpr); ok {
		name, ok := call.Fun.(*ast.SelectorExpr)
		return ok && info.Uses[name.Sel] != nil && info.Uses[name.Sel].Pkg() != nil &&
			info.Uses[name.Sel].Pkg().Path() == "maps"
	}
	known := info.Types[x].Type
	if known == nil {
		return false
	}
	_, ok := known.Underlying().(*types.Map)
	return ok
}

// floatSums are the places where floats are added to something that has no key.
func floatSums(info *types.Info, body *ast.BlockStmt) (places []token.Pos) {
	ast.Inspect(body, func(n ast.Node) bool {
		a, ok := n.(*ast.AssignStmt)
		if !ok || len(a.Lhs) != 1 || !isFloat(info, a.Lhs[0]) {
			return true
		}
		if _, keyed := a.Lhs[0].(*ast.IndexExpr); keyed {
			return true
		}
		grows := a.Tok != token.ASSIGN && a.Tok != token.DEFINE
		if sum, ok := a.Rhs[0].(*ast.BinaryExpr); ok && a.Tok == token.ASSIGN {
			grows = types.ExprString(sum.X) == types.ExprString(a.Lhs[0]) ||
				types.ExprString(sum.Y) == types.ExprString(a.Lhs[0])
		}
		if grows {
			places = append(places, a.Pos())
		}
		return true
	})
	return places
}

func isFloat(info *types.Info, x ast.Expr) bool {
	known := info.Types[x].Type
	if known == nil {
		return false
	}
	basic, ok := known.Underlying().(*types.Basic)
	return ok && basic.Info()&types.IsFloat != 0
}
