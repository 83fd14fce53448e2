package floors

import (
	"fmt"
	"go/token"
	"go/types"
	"slices"
	"strings"
	"testing"
)

// unparted are packages whose names are not apart yet.
var unparted = []string{"eval", "eval/alpaca", "eval/arena", "eval/bench", "eval/confaide", "eval/gate", "eval/mtbench",
	"eval/privacylens", "federated/link", "federated/lm", "federated/protocol", "grpo", "internal/batch", "internal/config",
	"internal/config/fault", "recipe", "recipe/federated", "recipe/pairs", "recipe/preference", "rollout", "rollout/local",
	"rollout/metered", "rollout/remote", "rollout/scorer", "train"}

// TestNamesApart: no two names of a package, and no two fields or methods that a value has, promoted ones included,
// differ by the case of letters alone. A reader takes t.rollouts() for t.Rollouts(). A method may have the name of its
// type's field that it gives, as in Go's own code: Inputs() and inputs.
func TestNamesApart(t *testing.T) {
	for _, p := range checkedPackages(t) {
		faults, late := p.twins(), slices.Contains(unparted, p.folder())
		if late && len(faults) == 0 {
			t.Errorf("%s: its names are apart: drop it from the list", p.folder())
		}
		for _, f := range faults {
			if !late {
				t.Error(f)
			}
		}
	}
}

// TestNamesApartBite: each declaration with the names that differ by case alone.
func TestNamesApartBite(t *testing.T) {
	const head = "package p\ntype base struct{ Size int }\nfunc (base) Load() {}\n"
	for text, want := range map[string]string{
		"type a struct{ base; name string }\nfunc (a) Name() string { return \"\" }": "",
		"type a struct{ error }":                                  "",
		"type a struct{ base }\nfunc (a) load() {}":               "load Load",
		"type a struct{ *base; size int }":                        "size Size",
		"type a struct{ Name string }\nfunc (a) name() {}":        "name Name",
		"type a struct{}\nfunc (a) Run() {}\nfunc (a) run() {}":   "Run run",
		"type a interface{ Run(); run() }":                        "Run run",
		"func Read() {}\nfunc read() {}":                          "Read read",
		"type Base struct{}":                                      "Base base",
		"type a struct{ base }\ntype b struct{ *a; load func() }": "load Load",
	} {
		var got []string
		for _, f := range checkText(t, head+text).twins() {
			words := strings.Fields(f)
			got = append(got, words[1]+" "+words[4])
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// member is a name that a value has.
type member struct {
	types.Object
	owner types.Type // that declares it
}

// twins returns a line for all names of a package that differ by case alone.
func (p *checked) twins() (faults []string) {
	seen := map[[2]token.Pos]bool{}
	add := func(a, b member) {
		if pair := [2]token.Pos{a.Pos(), b.Pos()}; !seen[pair] {
			seen[pair] = true
			faults = append(faults, fmt.Sprintf("%s: %s differs from %s (%s) by case alone", positions.Position(a.Pos()),
				a.Name(), b.Name(), positions.Position(b.Pos())))
		}
	}
	scope, all := p.types.Scope(), map[string]member{}
	for _, name := range scope.Names() {
		p.compare(all, member{scope.Lookup(name), nil}, add)
	}
	for _, name := range scope.Names() {
		if t, ok := scope.Lookup(name).(*types.TypeName); ok {
			p.compareMembers(t.Type(), map[string]member{}, add)
		}
	}
	return faults
}

// compare calls fault if there is another member whose name differs from m's by case alone.
func (p *checked) compare(all map[string]member, m member, fault func(a, b member)) {
	if !m.Exported() && m.Pkg() != p.types || m.Name() == "error" {
		return // cannot be written here, or is an embedded error
	}
	key := strings.ToLower(m.Name())
	other, ok := all[key]
	switch ours := other.Object != nil && other.Pkg() == p.types || m.Pkg() == p.types; {
	case !ok:
		all[key] = m
	case ours && other.Name() != m.Name() && !isGetter(m, other) && !isGetter(other, m):
		fault(other, m)
	}
}

// compareMembers goes through the fields and methods that a value of a type has.
func (p *checked) compareMembers(t types.Type, all map[string]member, fault func(a, b member)) {
	if pointer, ok := types.Unalias(t).(*types.Pointer); ok {
		t = pointer.Elem()
	}
	if named, ok := types.Unalias(t).(*types.Named); ok {
		for m := range named.Methods() {
			p.compare(all, member{m, named}, fault)
		}
	}
	switch u := t.Underlying().(type) {
	case *types.Interface:
		for m := range u.Methods() {
			p.compare(all, member{m, t}, fault)
		}
	case *types.Struct:
		for f := range u.Fields() {
			p.compare(all, member{f, types.Unalias(t)}, fault)
		}
		for f := range u.Fields() {
			if f.Embedded() {
				p.compareMembers(f.Type(), all, fault)
			}
		}
	}
}

// isGetter reports whether a method gives the field of its type, such as Inputs() the field inputs.
func isGetter(a, b member) bool {
	_, isMethod := a.Object.(*types.Func)
	_, isField := b.Object.(*types.Var)
	return isMethod && isField && a.owner == b.owner && a.Exported()
}
