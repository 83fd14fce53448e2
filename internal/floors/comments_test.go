package floors

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestCommentNames: what a comment names exists: a name in brackets, such as [Check], [Source.Test] or [ast.File], an
// exported name with its package, such as data.ReadPrompts, and a Go file, such as table_test.go.
func TestCommentNames(t *testing.T) {
	for _, f := range commentFaults(sourcesOf(t)) {
		t.Error(f)
	}
}

// TestCommentNamesBite: each comment with the names that the fault must have, in order.
func TestCommentNamesBite(t *testing.T) {
	const text = "package rows\nimport \"encoding/json\"\ntype base struct{ Len int }\n" +
		"type Row struct {\n\tbase\n\tHead *json.Decoder\n}\nfunc (r *Row) Write() {}\nfunc readAll() {}\n// "
	const test = "package rows\nfunc Helper() {}"
	for comment, want := range map[string]string{
		"[Row], [*Row], [Row.Write], [Row.Len], [rows.Row.Head], [readAll]": "",
		"[json.Decoder.Decode], json.Marshal":                               "",
		"[Len] is an axis, as are [S, V], [tokens], [KV], [groups*n]":       "",
		"x[Gone], []Gone, [Gone](gone.md), data/a.go, a.go, data/rows.Gone": "rows.Gone",
		"[Gone] [Row.Gone]: [Gone.Len], or [goneToo]":                       "Gone Row.Gone Gone.Len goneToo",
		"[json.Gone], [rows.Row.Gone], json.Gone and rows.Gone":             "json.Gone rows.Row.Gone rows.Gone",
		"(gone.go), data/gone.go, b_test.go":                                "gone.go data/gone.go",
		"[Helper] of a test":                                                "Helper",
	} {
		sources := parseAll(t, map[string]string{"data/a.go": text + comment, "data/b_test.go": test})
		var got []string
		for _, f := range commentFaults(sources) {
			place, rest, _ := strings.Cut(f, ": the comment names ")
			got = append(got, strings.TrimSuffix(rest, ", which does not exist"))
			if place != "data/a.go:10" {
				t.Errorf("%s: place %s", comment, place)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: names %q, want %q", comment, got, want)
		}
	}
}

// TestCommentsNameThings: no comment has "that" or "those" before an "of", where a reader looks back for the thing.
func TestCommentsNameThings(t *testing.T) {
	for _, s := range sourcesOf(t) {
		for _, f := range pronounFaults(s) {
			t.Error(f)
		}
	}
}

// TestCommentsNameThingsBites: each comment with the lines of its faults.
func TestCommentsNameThingsBites(t *testing.T) {
	for comment, want := range map[string]string{
		"// the loss is the pair's":                      "",
		"// that, of all, and those, often offer":        "",
		"// the loss is that of a pair":                  "3",
		"// a loss\n// and those\n// of a pair\n":        "4",
		"/* Those of a,\nthat\nof b */":                  "3 4",
		"var s = `those of a string` // and that of one": "3",
	} {
		sources := parseAll(t, map[string]string{"data/a.go": "package data\n\n" + comment})
		var got []string
		for _, f := range pronounFaults(sources[0]) {
			got = append(got, strings.Split(f, ":")[1])
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: lines %q, want %q", comment, got, want)
		}
	}
}

// pronoun may have its words in two lines of a group of comments.
var pronoun = regexp.MustCompile(`\b([Tt]hat|[Tt]hose)(\s|//)+of\b`)

// pronounFaults returns a line for each pronoun in a file's comments.
func pronounFaults(s Source) (faults []string) {
	for _, group := range s.Syntax.Comments {
		var text strings.Builder
		for _, c := range group.List {
			text.WriteString(c.Text + "\n")
		}
		for _, at := range pronoun.FindAllStringIndex(text.String(), -1) {
			line := positions.Position(group.Pos()).Line + strings.Count(text.String()[:at[0]], "\n")
			faults = append(faults, fmt.Sprintf("%s:%d: %q: name the thing", s.Path, line, text.String()[at[0]:at[1]]))
		}
	}
	return faults
}

// commentFaults returns a line for each name in a comment that nothing has. Comments of code do not name what only
// tests declare.
func commentFaults(sources []Source) (faults []string) {
	all, code := namesOf(sources), namesOf(slices.DeleteFunc(slices.Clone(sources), Source.Test))
	code.files = all.files
	for _, s := range sources {
		known := code
		if s.Test() {
			known = all
		}
		for _, group := range s.Syntax.Comments {
			for _, c := range group.List {
				for _, name := range known.missing(s.Package(), c.Text) {
					faults = append(faults, fmt.Sprintf("%s:%d: the comment names %s, which does not exist",
						s.Path, positions.Position(c.Pos()).Line, name))
				}
			}
		}
	}
	return faults
}

var (
	// linked are names in brackets, with what is before or behind an index, a slice's type or a link of Markdown.
	linked = regexp.MustCompile(`([\w\])]?)\[\*?([A-Za-z_]\w*(?:\.[A-Za-z_]\w*){0,2})\]([\w([]?)`)
	// qualified are exported names with their package.
	qualified = regexp.MustCompile(`\b([a-z]\w*\.[A-Z]\w*)`)
	// mixed are names with small and capital letters: others may be an axis of a shape.
	mixed = regexp.MustCompile(`[a-z]\w*[A-Z]|[A-Z]\w*[a-z]`)
	// goFile is the path of a Go file.
	goFile = regexp.MustCompile(`[\w./-]*\w\.go\b`)
)

// names are what comments may name.
type names struct {
	files   set
	known   set                 // such as data.Row and data.Row.Write, each with its folder
	axes    set                 // such as data.Write: fields and methods of any type of a folder, which shapes name
	bases   map[string][]string // of a type: those that it embeds or is defined by
	folders map[string]set      // folders, or import paths, by the name of the package
	read    set                 // folders whose names are known
}

func namesOf(sources []Source) *names {
	n := &names{set{}, set{}, set{}, map[string][]string{}, map[string]set{}, set{}}
	packages := packagesOf(sources)
	for _, s := range sources {
		n.files[s.Path] = true
		n.addFolder(s.Syntax.Name.Name, s.Package())
		n.add(s.Package(), s.Syntax, foldersOf(s, packages))
		for _, i := range s.Imports {
			if !strings.HasPrefix(i.Path, Module+"/") {
				n.addFolder(path.Base(i.Path), i.Path)
			}
		}
	}
	return n
}

func (n *names) addFolder(name, folder string) {
	if n.folders[name] == nil {
		n.folders[name] = set{}
	}
	n.folders[name][folder] = true
}

// readStandard notes what a package of the standard library declares, once.
func (n *names) readStandard(folder string) {
	if n.read[folder] || !standard(folder) {
		return
	}
	files, _ := filepath.Glob(filepath.Join(build.Default.GOROOT, "src", folder, "*.go"))
	for _, file := range files {
		if syntax, err := parser.ParseFile(positions, file, nil, parser.SkipObjectResolution); err == nil {
			n.add(folder, syntax, nil)
		}
	}
}

// add notes what a file declares.
func (n *names) add(folder string, file *ast.File, folders map[string]string) {
	n.read[folder] = true
	for _, d := range file.Decls {
		for _, i := range declared(d) {
			n.known[folder+"."+i.Name] = true
		}
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil {
			n.known[typeName(f.Recv.List[0].Type, folder, nil)+"."+f.Name.Name] = true
			n.axes[folder+"."+f.Name.Name] = true
		}
		if g, ok := d.(*ast.GenDecl); ok {
			for _, spec := range g.Specs {
				if t, ok := spec.(*ast.TypeSpec); ok {
					n.addType(folder, t, folders)
				}
			}
		}
	}
}

// addType notes what a type has itself, and its bases.
func (n *names) addType(folder string, spec *ast.TypeSpec, folders map[string]string) {
	self := folder + "." + spec.Name.Name
	for _, f := range membersOf(spec.Type) {
		for _, name := range f.Names {
			n.known[self+"."+name.Name] = true
			n.axes[folder+"."+name.Name] = true
		}
		if base := typeName(f.Type, folder, folders); len(f.Names) == 0 && base[0] != '.' {
			n.bases[self] = append(n.bases[self], base)
		}
	}
}

// membersOf are the fields of a struct, the methods of an interface, or any other type as the one that it embeds.
func membersOf(x ast.Expr) []*ast.Field {
	switch x := x.(type) {
	case *ast.StructType:
		return x.Fields.List
	case *ast.InterfaceType:
		return x.Methods.List
	}
	return []*ast.Field{{Type: x}}
}

// typeName is a type's name with its folder. A type without a name has ".".
func typeName(x ast.Expr, folder string, folders map[string]string) string {
	switch x := x.(type) {
	case *ast.Ident:
		return folder + "." + x.Name
	case *ast.StarExpr:
		return typeName(x.X, folder, folders)
	case *ast.IndexExpr:
		return typeName(x.X, folder, folders)
	case *ast.IndexListExpr:
		return typeName(x.X, folder, folders)
	case *ast.SelectorExpr:
		return folders[x.X.(*ast.Ident).Name] + "." + x.Sel.Name
	}
	return "."
}

// missing are the names of a comment, in a package's folder, that nothing has.
func (n *names) missing(folder, text string) (missing []string) {
	for _, m := range linked.FindAllStringSubmatch(text, -1) {
		if m[1] == "" && m[3] == "" && !n.has(folder, m[2]) {
			missing = append(missing, m[2])
		}
	}
	for _, name := range qualified.FindAllString(text, -1) {
		pkg, _, _ := strings.Cut(name, ".")
		if n.folders[pkg] != nil && !n.has(folder, name) && !slices.Contains(missing, name) {
			missing = append(missing, name)
		}
	}
	for _, file := range goFile.FindAllString(text, -1) {
		if !n.files[file] && !n.files[folder+"/"+file] {
			missing = append(missing, file)
		}
	}
	return missing
}

func (n *names) has(folder, name string) bool {
	pkg, rest, dotted := strings.Cut(name, ".")
	if n.hasMember(folder, name) || !dotted && (n.axes[folder+"."+name] || !mixed.MatchString(name)) {
		return true
	}
	return slices.ContainsFunc(slices.Collect(maps.Keys(n.folders[pkg])), func(f string) bool {
		n.readStandard(f)
		return dotted && (n.hasMember(f, rest) || strings.Contains(f, "."))
	})
}

// hasMember reports whether a package has a name such as Row or Row.Write.
func (n *names) hasMember(folder, name string) bool {
	if n.known[folder+"."+name] {
		return true
	}
	owner, member, _ := strings.Cut(name, ".")
	return slices.ContainsFunc(n.bases[folder+"."+owner], func(base string) bool {
		i := strings.LastIndex(base, ".")
		return member != "" && (base[i+1:] == member || n.hasMember(base[:i], base[i+1:]+"."+member))
	})
}
