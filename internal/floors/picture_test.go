package floors

import (
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestPicture draws this repository: well-formed XML that names every package, with the ground at the bottom, and the
// same as docs/floors.svg.
func TestPicture(t *testing.T) {
	picture := draw(boxesOf(sourcesOf(t)))
	checkFile(t, picture)
	for d := xml.NewDecoder(strings.NewReader(picture)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	place := func(name string) int { return strings.Index(picture, `class="name">`+name+"<") }
	if cmd, grpo, data := place("cmd/posttrain"), place("grpo"), place("data"); cmd < 0 || grpo < cmd || data < grpo {
		t.Errorf("cmd/posttrain at %d, grpo at %d, data at %d: want this order", cmd, grpo, data)
	}
	if place("internal/testkit") >= 0 {
		t.Error("a package for tests is in the picture")
	}
}

func TestBoxesLeaveOutWhatOthersImport(t *testing.T) {
	file := func(path string, imports ...string) Source {
		s := Source{Path: path}
		for _, i := range imports {
			s.Imports = append(s.Imports, Import{Path: i})
		}
		return s
	}
	m := Module + "/"
	boxes := boxesOf([]Source{
		file("train/a.go", m+"model", m+"internal/batch", m+"data", "fmt", "github.com/gomlx/gomlx/core/graph"),
		file("train/a_test.go", m+"internal/embedded"), file("internal/batch/b.go", m+"data"), file("data/c.go"), file("model/d.go"),
	})
	got := boxes[slices.IndexFunc(boxes, func(b box) bool { return b.name == "train" })]
	if !slices.Equal(got.ours, []string{"internal/batch", "model"}) || !slices.Equal(got.modules, []string{"gomlx"}) {
		t.Errorf("%+v, want batch and model, and gomlx", got)
	}
}

var update = flag.Bool("update", false, "write docs/floors.svg, and lower the budgets of docs/decisions.md")

// checkFile compares the picture in the tree with one drawn from the imports of today.
func checkFile(t *testing.T, picture string) {
	const file = "../../docs/floors.svg"
	if *update {
		if err := os.WriteFile(file, []byte(picture), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if stored, err := os.ReadFile(file); err != nil || string(stored) != picture {
		t.Errorf("docs/floors.svg does not show the imports of today (%v): run make picture", err)
	}
}

// box is a package of the picture.
type box struct {
	name    string
	floor   int
	ours    []string // packages that it imports, without those that it also reaches through another
	modules []string // names of other modules' packages
}

// boxesOf are the packages that are not for tests only, in the order of their names.
func boxesOf(sources []Source) []box {
	imports := importsOf(sources)
	var boxes []box
	for name, all := range imports {
		row, _ := RowOf(name)
		b := box{name: name, floor: row.Floor}
		for path := range all {
			own, ours := strings.CutPrefix(path, Module+"/")
			switch {
			case ours && !isReachable(imports, all, own):
				b.ours = append(b.ours, own)
			case !ours && strings.Contains(path, "."):
				b.modules = append(b.modules, moduleName(path))
			}
		}
		slices.Sort(b.ours)
		slices.Sort(b.modules)
		b.modules = slices.Compact(b.modules)
		boxes = append(boxes, b)
	}
	slices.SortFunc(boxes, func(a, b box) int { return strings.Compare(a.name, b.name) })
	return boxes
}

type set map[string]bool

// importsOf are the paths that the packages import, tests aside.
func importsOf(sources []Source) map[string]set {
	imports := map[string]set{}
	for _, s := range sources {
		name := s.Package()
		about := name == "internal/floors" || strings.HasPrefix(name, "scripts/") // about the tree, not part of it
		if about || s.Test() || slices.Contains(TestsOnly, name) {
			continue
		}
		if imports[name] == nil {
			imports[name] = set{}
		}
		for _, i := range s.Imports {
			imports[name][i.Path] = true
		}
	}
	return imports
}

// isReachable reports whether one of the imported packages imports the package called name, itself or through others.
func isReachable(imports map[string]set, from set, name string) bool {
	for path := range from {
		own, ours := strings.CutPrefix(path, Module+"/")
		if !ours || own == name {
			continue
		}
		if imports[own][Module+"/"+name] || isReachable(imports, imports[own], name) {
			return true
		}
	}
	return false
}

// moduleName is the last part of a module's path that is not a version: gomlx of github.com/gomlx/gomlx/core/graph.
func moduleName(path string) string {
	parts := strings.Split(path, "/")
	parts = parts[:min(len(parts), 3)]
	switch parts[0] {
	case "golang.org":
		return "x/" + parts[2]
	case "k8s.io":
		return parts[1]
	}
	return parts[len(parts)-1]
}

// Measures of the picture in pixels.
const (
	width   = 860
	margin  = 10
	columns = 4
	gap     = 8
	boxWide = (width - 2*margin - (columns+1)*gap) / columns
	line    = 15                      // between lines of text
	heading = 26                      // of a floor
	textMax = (boxWide - 16) * 2 / 13 // letters of a line in a box
)

var colors = []string{"#e8f1e4", "#e3eef8", "#f8f0de", "#f6e4e4", "#ece6f4", "#e2f1f0", "#eeeeee"}

// draw stacks the floors, the ground at the bottom.
func draw(boxes []box) string {
	var body strings.Builder
	y := margin
	for floor := len(Names) - 1; floor >= 0; floor-- {
		others := func(b box) bool { return b.floor != floor }
		y += drawFloor(&body, floor, y, slices.DeleteFunc(slices.Clone(boxes), others)) + gap
	}
	drawText(&body, margin, y+line, "small", "A package imports only floors below its own, and the neighbours that "+
		"internal/floors names. In italics: other modules.")
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]d %[2]d" font-family="sans-serif">
<title>The packages of posttrain on their floors</title>
<style>
.floor{font-size:14px;fill:#444} .name{font-size:15px;font-weight:bold}
.small{font-size:12px;fill:#444} .module{font-size:12px;fill:#666;font-style:italic}
</style>
<rect width="%[1]d" height="%[2]d" fill="#ffffff"/>
%[3]s</svg>
`, width, y+2*line, body.String())
}

// drawFloor draws one floor at height y and returns how high it is.
func drawFloor(out *strings.Builder, floor, y int, boxes []box) int {
	var inside strings.Builder
	high := heading
	for row := range slices.Chunk(boxes, columns) {
		most := 0
		for _, b := range row {
			most = max(most, len(textOf(b)))
		}
		for i, b := range row {
			drawBox(&inside, b, margin+gap+i*(boxWide+gap), y+high, 28+most*line)
		}
		high += 28 + most*line + gap
	}
	drawRect(out, margin, y, width-2*margin, high, colors[floor%len(colors)])
	drawText(out, margin+gap, y+18, "floor", Names[floor])
	out.WriteString(inside.String())
	return high
}

func drawBox(out *strings.Builder, b box, x, y, high int) {
	drawRect(out, x, y, boxWide, high, "#ffffff")
	drawText(out, x+8, y+19, "name", b.name)
	for i, t := range textOf(b) {
		drawText(out, x+8, y+19+(i+1)*line, t.class, t.text)
	}
}

func drawRect(out *strings.Builder, x, y, wide, high int, color string) {
	fmt.Fprintf(out, `<rect x="%d" y="%d" width="%d" height="%d" rx="5" fill="%s" stroke="#bbbbbb"/>`+"\n",
		x, y, wide, high, color)
}

func drawText(out *strings.Builder, x, y int, class, text string) {
	fmt.Fprintf(out, `<text x="%d" y="%d" class="%s">%s</text>`+"\n", x, y, class, text)
}

type textLine struct{ class, text string }

// textOf are the lines below a package's name.
func textOf(b box) (lines []textLine) {
	for _, l := range wrap("← ", b.ours) {
		lines = append(lines, textLine{"small", l})
	}
	for _, l := range wrap("", b.modules) {
		lines = append(lines, textLine{"module", l})
	}
	return lines
}

// wrap breaks a list of names into lines that fit a box.
func wrap(start string, names []string) (lines []string) {
	for i, n := range names {
		if i < len(names)-1 {
			n += ","
		}
		last := len(lines) - 1
		switch {
		case i == 0:
			lines = append(lines, start+n)
		case len([]rune(lines[last]))+1+len(n) <= textMax:
			lines[last] += " " + n
		default:
			lines = append(lines, n)
		}
	}
	return lines
}
