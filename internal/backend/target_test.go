//go:build cgo && linux

package backend

import (
	"fmt"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
)

func TestDeviceCompiles(t *testing.T) {
	e, err := OpenDevice("h100", "")
	if err != nil {
		t.Fatal(err)
	}
	p, err := e.Compile("product", func(g *graph.Graph) []*graph.Node {
		x := graph.Parameter(g, "x", shapes.Make(dtypes.BFloat16, 1024, 2048))
		y := graph.Parameter(g, "y", shapes.Make(dtypes.BFloat16, 2048, 512))
		return []*graph.Node{graph.Exp(graph.Dot(x, y).Product())}
	})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("%+v\n", p.Compiled())
}
