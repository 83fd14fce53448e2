package main

import (
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/floors"
)

// TestPicture draws this repository: well-formed XML that names every package, with the ground at the bottom.
func TestPicture(t *testing.T) {
	sources, err := floors.Read("../..")
	if err != nil {
		t.Fatal(err)
	}
	picture := draw(boxesOf(sources))
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
	file := func(path string, imports ...string) floors.Source {
		s := floors.Source{Path: path}
		for _, i := range imports {
			s.Imports = append(s.Imports, floors.Import{Path: i})
		}
		return s
	}
	m := floors.Module + "/"
	boxes := boxesOf([]floors.Source{
		file("train/a.go", m+"model", m+"batch", m+"data", "fmt", "github.com/gomlx/gomlx/core/graph"),
		file("train/a_test.go", m+"embedded"), file("batch/b.go", m+"data"), file("data/c.go"), file("model/d.go"),
	})
	got := boxes[slices.IndexFunc(boxes, func(b box) bool { return b.name == "train" })]
	if !slices.Equal(got.ours, []string{"batch", "model"}) || !slices.Equal(got.modules, []string{"gomlx"}) {
		t.Errorf("%+v, want batch and model, and gomlx", got)
	}
}
