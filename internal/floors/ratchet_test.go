package floors

import (
	"fmt"
	"go/ast"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// What has a budget beside the rows of the table.
const (
	wholeTree   = "the whole tree"
	unusedNames = "exported names that no other package uses"
)

// slack is how far a budget may be above what is there.
const slack = 40

// TestRatchet: nothing is above its budget, and no budget is far above what is there. The budgets are in
// docs/decisions.md alone, in lines of Go without tests. -update lowers them to what is there and raises none: a raise
// is an edit that says what the lines buy. -v lists the names that the last budget counts.
func TestRatchet(t *testing.T) {
	const file = "../../docs/decisions.md"
	stored, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	page, now := string(stored), measure(sourcesOf(t))
	if *update {
		page = lower(page, now)
		if err := os.WriteFile(file, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if testing.Verbose() {
		t.Logf("%s: %s", unusedNames, strings.Join(unused(sourcesOf(t)), ", "))
	}
	for _, f := range compare(budgetsOf(page), now) {
		t.Error(f)
	}
}

// TestRatchetBites: 40 lines below a budget of 100 are enough, 41 are too many.
func TestRatchetBites(t *testing.T) {
	const page = "## Old\n\n| losses | 7 | |\n\n## Budgets\n\n| row | lines | what |\n|---|---|---|\n" +
		"| losses | 100 | |\n| model | 50 | three layers |\n"
	for _, c := range []struct {
		losses, model int
		fault         string // empty: none
		updated       string // the table after -update
	}{
		{100, 50, "", "| losses | 100 | |\n| model | 50 | three layers |\n"},
		{60, 10, "", "| losses | 60 | |\n| model | 10 | three layers |\n"},
		{101, 49, "losses has 101 lines, its budget is 100: make it smaller, or raise the budget and say in " +
			"docs/decisions.md what the lines buy", "| losses | 100 | |\n| model | 49 | three layers |\n"},
		{59, 50, "losses has 59 lines, its budget is 100: lower it",
			"| losses | 59 | |\n| model | 50 | three layers |\n"},
	} {
		now := map[string]int{"losses": c.losses, "model": c.model}
		got := strings.Join(compare(budgetsOf(page), now), "\n")
		if (got == "") != (c.fault == "") || !strings.Contains(got, c.fault) {
			t.Errorf("%v: %q, want %q", now, got, c.fault)
		}
		if got := lower(page, now); !strings.HasSuffix(got, "|---|---|---|\n"+c.updated) ||
			!strings.HasPrefix(got, "## Old\n\n| losses | 7 | |\n") {
			t.Errorf("%v: updated to %q, want %q", now, got, c.updated)
		}
	}
	got := compare(budgetsOf(page), map[string]int{"losses": 100, "train": 7})
	if len(got) != 2 || !strings.Contains(got[0], "model, which is not a row") ||
		!strings.Contains(got[1], "train has no budget") {
		t.Errorf("a row without a budget, a budget without a row: %q", got)
	}
}

const budgetsHeading = "\n## Budgets\n"

var budgetLine = regexp.MustCompile(`(?m)^\| (.+?) \| (\d+) \|`)

// budgetsOf are the budgets of a page by what has them.
func budgetsOf(page string) map[string]int {
	_, table, _ := strings.Cut(page, budgetsHeading)
	budgets := map[string]int{}
	for _, m := range budgetLine.FindAllStringSubmatch(table, -1) {
		budgets[m[1]], _ = strconv.Atoi(m[2])
	}
	return budgets
}

// lower gives the page with budgets that are at most what is there.
func lower(page string, now map[string]int) string {
	before, table, _ := strings.Cut(page, budgetsHeading)
	budgets := budgetsOf(page)
	return before + budgetsHeading + budgetLine.ReplaceAllStringFunc(table, func(line string) string {
		name := budgetLine.FindStringSubmatch(line)[1]
		if there, ok := now[name]; ok && there < budgets[name] {
			return fmt.Sprintf("| %s | %d |", name, there)
		}
		return line
	})
}

// compare returns a line for all that is not as its budget wants it.
func compare(budgets, now map[string]int) (faults []string) {
	fault := func(format string, a ...any) { faults = append(faults, fmt.Sprintf("internal/floors: "+format, a...)) }
	for _, name := range slices.Sorted(maps.Keys(budgets)) {
		if _, ok := now[name]; !ok {
			fault("docs/decisions.md has a budget of %s, which is not a row of the table", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		unit := "lines"
		if name == unusedNames {
			unit = "names"
		}
		switch budget, ok := budgets[name]; {
		case !ok:
			fault("%s has no budget: give it a line under Budgets in docs/decisions.md", name)
		case now[name] > budget:
			fault("%s has %d %s, its budget is %d: make it smaller, or raise the budget and say in docs/decisions.md "+
				"what the %[3]s buy", name, now[name], unit, budget)
		case now[name] < budget-slack:
			fault("%s has %d %s, its budget is %d: lower it (go test ./internal/floors -run TestRatchet -update)",
				name, now[name], unit, budget)
		}
	}
	return faults
}

// measure counts what has a budget.
func measure(sources []Source) map[string]int {
	now := map[string]int{unusedNames: len(unused(sources))}
	for _, s := range sources {
		if !s.Test() {
			row, _ := RowOf(s.Package())
			now[row.Package] += s.Lines
			now[wholeTree] += s.Lines
		}
	}
	return now
}

// unused are the exported top-level names, such as data.ReadPrompts, that no other package's code names: types,
// functions, constants and variables, but no methods or fields. Tests do not count, as users or as declarers, nor do
// packages for tests; commands declare nothing for others. A type that others have only as a function's result counts
// as unused.
func unused(sources []Source) (names []string) {
	sources = slices.DeleteFunc(slices.Clone(sources), func(s Source) bool {
		return s.Test() || slices.Contains(TestsOnly, s.Package())
	})
	uses := usesOf(sources)
	for _, s := range sources {
		for _, name := range exportedBy(s.Syntax) {
			if full := s.Package() + "." + name; !uses[full] && s.Syntax.Name.Name != "main" {
				names = append(names, full)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// usesOf are the names of other packages of ours, such as data.ReadPrompts, that the files select.
func usesOf(sources []Source) set {
	packages := packagesOf(sources)
	uses := set{}
	for _, s := range sources {
		folders := foldersOf(s, packages)
		ast.Inspect(s.Syntax, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := sel.X.(*ast.Ident); ok && x.Obj == nil { // else a variable of the import's name
					uses[folders[x.Name]+"."+sel.Sel.Name] = true
				}
			}
			return true
		})
	}
	return uses
}

// packagesOf are the names of packages by folder.
func packagesOf(sources []Source) map[string]string {
	packages := map[string]string{}
	for _, s := range sources {
		if !s.Test() {
			packages[s.Package()] = s.Syntax.Name.Name
		}
	}
	return packages
}

// foldersOf are the folders of our packages by the names that a file gives them.
func foldersOf(s Source, packages map[string]string) map[string]string {
	folders := map[string]string{}
	for i, spec := range s.Syntax.Imports {
		folder, ours := strings.CutPrefix(s.Imports[i].Path, Module+"/")
		if !ours {
			continue
		}
		name := packages[folder]
		if spec.Name != nil {
			name = spec.Name.Name
		}
		folders[name] = folder
	}
	return folders
}

// exportedBy are the exported top-level names of a file.
func exportedBy(file *ast.File) (names []string) {
	for _, d := range file.Decls {
		for _, i := range declared(d) {
			if i.IsExported() {
				names = append(names, i.Name)
			}
		}
	}
	return names
}

// declared are the names that a declaration adds to its package.
func declared(d ast.Decl) (names []*ast.Ident) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			names = append(names, d.Name)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				names = append(names, spec.Name)
			case *ast.ValueSpec:
				names = append(names, spec.Names...)
			}
		}
	}
	return names
}

// TestUnused counts by hand: Read and Row are used, Write by a test alone, Spare by its own package and by a field of a
// variable that has the package's name.
func TestUnused(t *testing.T) {
	const rows = "package data\ntype Row struct{}\nfunc Read() (r Row) { return r }\nfunc (Row) Method() {}\nvar x int"
	const user = "package p\nimport rows \"" + Module + "/data\"\nvar r rows.Row = rows.Read()\n"
	got := unused(parseAll(t, map[string]string{
		"data/a.go":       rows,
		"data/b.go":       "package data\nconst Spare, Write = 1, Spare\nvar _ = Write",
		"train/a.go":      user + "func f(rows struct{ Spare int }) int { return rows.Spare }",
		"train/a_test.go": user + "var w = rows.Write",
		"cmd/a.go":        "package main\nfunc Main() {}",
	}))
	if want := []string{"data.Spare", "data.Write"}; !slices.Equal(got, want) {
		t.Errorf("unused: %q, want %q", got, want)
	}
}

func parseAll(t *testing.T, texts map[string]string) (sources []Source) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		s, err := parseText(name, texts[name])
		if err != nil {
			t.Fatal(err)
		}
		sources = append(sources, s)
	}
	return sources
}
