package backend

import (
	"fmt"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/posttrain/posttrain/internal/testkit/expect"
)

// TestOneProgramKeepsOutputs: of the programs in a cache only the one that runs keeps its outputs for the next run, however
// many shapes there are and in whatever order they come.
func TestOneProgramKeepsOutputs(t *testing.T) {
	e := openTestONNX(t)
	c := e.NewCache()
	defer c.Close()
	outputs := func(n int) []compute.Buffer {
		t.Helper()
		p, err := c.Program(fmt.Sprint(n), func(g *graph.Graph) []*graph.Node {
			x := graph.Parameter(g, "x", shapes.Make(dtypes.Float32, n))
			return []*graph.Node{graph.Neg(x), graph.Abs(x)}
		})
		expect.OK(t, err)
		x := expect.Must(e.Float32(make([]float32, n), n))(t)
		defer FinalizeAll(x)
		return expect.Must(p.Run([]compute.Buffer{x}, nil))(t)
	}
	kept := func(key string) int {
		list, mu := keptOutputs(c.programs[key].exec)
		if mu == nil {
			t.Fatal("the fields of compute-onnx's executables have other names")
		}
		return list.Len()
	}
	gradient := outputs(1) // is freed when others have run, as a gradient of the first microbatch is
	for _, n := range []int{2, 3, 4, 2, 5, 2} {
		FinalizeAll(outputs(n)...)
		for key := range c.programs {
			want := 0
			if key == fmt.Sprint(n) {
				want = 2
			}
			if got := kept(key); got != want {
				t.Errorf("after program %d, program %s keeps %d outputs, want %d", n, key, got, want)
			}
		}
	}
	FinalizeAll(gradient...)
	FinalizeAll(outputs(3)...)
	if got := kept("1") + kept("2"); got != 0 {
		t.Errorf("%d outputs are kept by programs that do not run", got)
	}
}
