package floors

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"testing"
)

// TestNoSumOverMapOrder: no package adds floats up in the order of a map, which is another one in each process: equal
// runs would differ in the last bits. A sum for each key is one of its own and has no order.
func TestNoSumOverMapOrder(t *testing.T) {
	for _, p := range checkedPackages(t) {
		for _, fault := range p.sumsOverMaps() {
			t.Error(fault)
		}
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
		text := "package p\nimport (\"maps\"; \"slices\")\nvar _, _ = maps.Keys[map[int]int], slices.Sorted[int]\n" +
			"func f(m, other map[int]float64) (sum float64, n int) {\nvar s struct{ total float64 }\n" + body +
			"\nreturn sum + s.total, n\n}\n"
		found := checkText(t, text).sumsOverMaps()
		if len(found) != faults {
			t.Errorf("%s: found %q, want %d", body, found, faults)
		}
	}
}

// sumsOverMaps gives the place of each sum of floats in the order of a map.
func (p *checked) sumsOverMaps() (faults []string) {
	for _, file := range p.files {
		ast.Inspect(file, func(n ast.Node) bool {
			if loop, ok := n.(*ast.RangeStmt); ok && overMap(p.info, loop.X) {
				for _, at := range floatSums(p.info, loop.Body) {
					faults = append(faults, fmt.Sprintf("%s: floats are added up in the order of a map: sort its keys",
						positions.Position(at)))
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
