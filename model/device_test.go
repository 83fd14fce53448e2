package model

import (
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/internal/testkit/need"
)

// TestDeviceHeadAddsUpAtOnce: on a GPU the gradients of the table, one for each chunk of slots, do not wait for each other.
func TestDeviceHeadAddsUpAtOnce(t *testing.T) {
	need.Ask(t, "xla")
	need.Ask(t, "cuda-compiler")
	e := expect.Must(backend.OpenMesh("device:h100", backend.Mesh{}))(t)
	defer e.Close()
	const slots, vocabulary, hidden, chunk = 1024, 32768, 512, 64
	p, err := e.Compile("head", func(g *Graph) []*Node {
		x := Parameter(g, "x", shapes.Make(dtypes.BFloat16, slots, hidden))
		table := Parameter(g, "table", shapes.Make(dtypes.Float32, vocabulary, hidden))
		v := Parameter(g, "v", shapes.Make(dtypes.Float32, slots))
		y := head{table: table, blocks: 1, chunk: chunk}.logSumExp(x)
		return Gradient(ReduceAllSum(Mul(y, v)), x, table)
	})
	expect.OK(t, err)
	if c, one := p.Compiled(), 4*vocabulary*hidden; c.Temporary > 4*one {
		t.Errorf("%d MB of temporary values, a gradient of the table has %d MB: want four of them or less", c.Temporary/1e6, one/1e6)
	}
}
