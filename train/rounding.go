package train

import (
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
)

// roundAtRandom rounds x to bfloat16, up or down with chances that keep its mean. A moment changes by less than half a
// step of bfloat16 in most updates, and would stay where it is if it were rounded to the nearest. The draws depend on
// the seed [1] and the element's index alone.
func roundAtRandom(x, seed *graph.Node) *graph.Node {
	g, n := x.Graph(), x.Shape().Size()
	h := graph.Iota(g, shapes.Make(dtypes.Uint32, n), 0)
	h = graph.Add(h, graph.MulScalar(graph.ConvertDType(seed, dtypes.Uint32), 0x9e3779b1))
	for _, round := range []struct{ shift, factor uint32 }{{16, 0x85ebca6b}, {13, 0xc2b2ae35}} { // MurmurHash3's mixer
		h = graph.BitwiseXor(h, graph.BitwiseShiftRightLogicalScalar(h, round.shift))
		h = graph.MulScalar(h, round.factor)
	}
	draw := graph.Reshape(graph.BitwiseShiftRightLogicalScalar(h, 16), x.Shape().Dimensions...)
	bits := graph.Add(graph.Bitcast(x, dtypes.Uint32), draw) // carries into the 16 upper bits, which are the bfloat16
	bits = graph.BitwiseAnd(bits, graph.Scalar(g, dtypes.Uint32, uint32(0xffff0000)))
	return graph.ConvertDType(graph.Bitcast(bits, dtypes.Float32), dtypes.BFloat16)
}

// roundingSeed is the seed of update t, which draws from it onwards, twice for each tensor.
func roundingSeed(t int) int32 { return int32(t * 1009 << 11 & 0x7fffffff) }
