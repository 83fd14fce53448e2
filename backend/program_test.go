package backend_test

import (
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/backend"
	"github.com/posttrain/posttrain/backend/backendtest"
)

func TestRunMultiplies(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, e *backend.Engine) {
		p, err := e.Compile("double", func(g *graph.Graph) []*graph.Node {
			x := graph.Parameter(g, "x", shapes.Make(dtypes.Float32, 2))
			return []*graph.Node{graph.MulScalar(x, 2)}
		})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		x, err := e.Float32([]float32{1, 2}, 2)
		if err != nil {
			t.Fatal(err)
		}
		defer backend.FinalizeAll(x)
		out, err := p.Run(inputs(x), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer backend.FinalizeAll(out...)
		got, err := backend.Floats(out[0])
		if err != nil || len(got) != 2 || got[0] != 2 || got[1] != 4 {
			t.Fatalf("got %v, %v: want [2 4]", got, err)
		}
	})
}
